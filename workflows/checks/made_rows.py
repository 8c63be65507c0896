"""The rows of a dataset with one row per user: its samples, as training makes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import tensorflow as tf
from merlin.schema import Schema

from ...dataloader.behaviour_samples import BehaviourSamples
from ...dataloader.draws import place_seed
from ...dataloader.sample_columns import SampleColumns
from ...dataloader.sample_order import Stretching
from ...dataloader.user_rows import UserRows
from ...schemas.channels import POSITIVE_HISTORY
from ...schemas.dataset import DatasetDirectory
from . import kernels
from .checked_rows import CheckedRows

SAMPLES = 1 << 14


@dataclass(frozen=True)
class MadeRows:
    """The samples of a mapping; negative histories are left out.

    Args:
        dataset: An opened directory of users.
        mapping: ``train``, ``test``, ...
    """

    dataset: DatasetDirectory
    mapping: str

    @cached_property
    def _users(self) -> UserRows:
        return UserRows(self.dataset, self.mapping, self._samples.columns, on_cpu=True)

    @cached_property
    def _history(self) -> str:
        return self.dataset.channels[POSITIVE_HISTORY][0]

    @cached_property
    def _samples(self) -> BehaviourSamples:
        channels = self.dataset.channels
        lists = {
            name for name in self.dataset.schema.column_names if self.dataset.schema[name].is_list
        }
        single = [name for names in channels.values() for name in names if name not in lists]
        schema = Schema([self.dataset.schema[name] for name in (*single, self._history)])
        return BehaviourSamples(SampleColumns.read(self.dataset, schema))

    @property
    def parts(self) -> list[int]:
        """The row groups that have samples."""
        return self._users.parts

    def rows_of(self, part: int) -> int:
        """How many samples a part has."""
        return self._rows_of_parts[part]

    @cached_property
    def _rows_of_parts(self) -> dict[int, int]:
        return dict(zip(self.parts, self._cut.rows_of_parts(self._users), strict=True))

    @property
    def _cut(self) -> Stretching:
        return Stretching(1, self._samples.columns.of_position, are_rows=False)

    def read(self, part: int) -> Iterator[CheckedRows]:
        """Make the samples of a row group of users, some at a time."""
        block = self._users.read([part])
        users = self._users.tensors(block)
        layout = self._users.layout
        entries = self._cut.entries(block, self.mapping, 0, None)
        seeds = tf.constant([layout.seed, place_seed(layout.seed)], tf.uint64)
        for first in range(0, len(entries), SAMPLES):
            chosen = tf.constant(entries[first : first + SAMPLES])
            made, labels, _ = self._samples(users, chosen, seeds)
            columns = {name: values.numpy() for name, values in made.items()}
            history = columns.pop(self._history)
            count, width = history.shape
            hashed = kernels.hash_lists(history.reshape(-1), np.arange(count + 1) * width)
            flat = labels.numpy()[:, 0].astype(np.int8)
            yield CheckedRows.of(flat, columns, hashed, history[:, -1])
