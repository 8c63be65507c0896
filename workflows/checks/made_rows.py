"""The rows of a dataset with one row per user: its samples, as training makes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from merlin.schema import Schema

from ...dataloader.arrow_columns import Column
from ...dataloader.behaviour_samples import BehaviourSamples
from ...dataloader.draws import position_seed
from ...dataloader.epoch_plan import Segmentation
from ...dataloader.row_check import vector_widths
from ...dataloader.sample_columns import SampleColumns
from ...dataloader.user_rows import UserRows
from ...schemas.channels import POSITIVE_HISTORY
from ...schemas.dataset import DatasetDirectory
from .checked_rows import CheckedRows, checked_columns

SAMPLES = 1 << 14


class MadeRows:
    """The samples of a mapping, as far as they are compared."""

    def __init__(self, dataset: DatasetDirectory, mapping: str) -> None:
        self.mapping = mapping
        self._history = dataset.channels[POSITIVE_HISTORY][0]
        schema = Schema([dataset.schema[name] for name in checked_columns(dataset)])
        vectors = vector_widths(schema)
        self._lists = [c.name for c in schema if c.is_list and c.name not in vectors]
        self._samples = BehaviourSamples(SampleColumns.read(dataset, schema))
        self._users = UserRows(dataset, mapping, self._samples.columns, on_cpu=True)
        self._cut = Segmentation(1, self._samples.columns.of_position, are_rows=False)
        sizes = self._cut.rows_of_parts(self._users)
        self.parts = dict(zip(self._users.parts, sizes, strict=True))
        """Row group -> how many samples it has; those without any are left out."""

    def read(self, part: int) -> Iterator[CheckedRows]:
        """Make the samples of a row group of users, some at a time."""
        block = self._users.read([part])
        users = self._users.tensors(block)
        layout = self._users.layout
        entries = self._cut.entries(block, self.mapping, 0, None)
        seeds = tf.constant([layout.seed, position_seed(layout.seed)], tf.uint64)
        for first in range(0, len(entries), SAMPLES):
            chosen = tf.constant(entries[first : first + SAMPLES])
            made, labels, _ = self._samples(users, chosen, seeds)
            columns = {name: values.numpy() for name, values in made.items()}
            lists = {name: _column(columns.pop(name)) for name in self._lists}
            history = lists.pop(self._history)
            yield CheckedRows(labels.numpy()[:, 0].astype(np.int8), columns, history, lists=lists)


def _column(padded: npt.NDArray[Any]) -> Column:
    """Lists of one length, [rows, width], as a column."""
    count, width = padded.shape
    return Column(padded.reshape(-1), np.arange(count + 1) * width)
