"""Where the samples of an evaluation stand in the dataset, so that scores can be joined back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ...dataloader.epoch_plan import EpochPlan, slots
from ...dataloader.loader import Loader
from ...dataloader.users.grouped_loader import GroupedLoader
from ...dataloader.users.stretches import stretches_of
from ...schemas.channels import TARGET_ITEM_FEATURES
from ...schemas.dataset import DatasetDirectory
from ...steps.sample_batch import SampleBatch
from .scored_rows import NONE, Places

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class SamplePlaces:
    """Finds the places of a batch's samples, of a feed in the stored order."""

    feed: Loader
    plan: EpochPlan
    item: str | None
    """The column of the target item."""
    users: _Users | None
    """None where a stored row is one sample."""

    @classmethod
    def of(cls, feed: Loader, dataset: DatasetDirectory, mapping: str) -> SamplePlaces:
        """Read how many samples each user has, in a dataset of users.

        Args:
            feed: The evaluation's feed; not shuffled, and no rows left out.
            dataset: What it reads.
            mapping: Which rows of it.
        """
        item = next(iter(dataset.channels.get(TARGET_ITEM_FEATURES, ())), None)
        users = None if dataset.users is None else _Users.read(feed, dataset, mapping)
        return cls(feed, feed.plan(0), item, users)

    def of_batch(self, step: int, batch: SampleBatch) -> Places:
        """Find the samples of this rank's batch of a step."""
        size, rank = self.feed.global_size, self.feed.global_rank
        low, _ = slots(self.plan.batch_rows(step), rank, size)
        first = step * self.plan.global_batch_size + low
        count = batch.samples
        items = np.full(count, NONE)
        if self.item is not None:
            items = batch.counted(batch.columns[self.item].numpy().reshape(-1)).astype(np.int64)
        if self.users is None:
            return Places(first + np.arange(count), np.full(count, NONE), items)
        return Places(*self.users.find(first, count), items)


@dataclass(frozen=True, eq=False)
class _Users:
    """The samples of users, numbered user after user, and of each position after position."""

    begins: Array
    """[users] The first position that is a sample."""
    starts: Array
    """[users + 1] How many samples the users before have."""
    of_position: int
    """Samples of a position."""
    stretches: Array | None
    """[stretches + 1] How many samples stand before each row of users x candidates."""

    @classmethod
    def read(cls, feed: Loader, dataset: DatasetDirectory, mapping: str) -> _Users:
        layout = dataset.users
        assert layout is not None
        columns = list(layout.positions[mapping])
        tables = [pq.read_table(file, columns=columns) for file in dataset.stored_files(mapping)]
        begins, ends = (
            np.asarray(pa.concat_tables(tables)[name]).astype(np.int64) for name in columns
        )
        counts = ends - begins
        each = layout.samples_per_position
        stretches = None
        if isinstance(feed, GroupedLoader):
            stretches = _starts(_lengths(counts, feed.positions_together)) * each
        return cls(begins, _starts(counts) * each, each, stretches)

    def find(self, first_row: int, count: int) -> tuple[Array, Array]:
        """Find so many samples from a row of the feed on: users' rows, and positions."""
        first = first_row if self.stretches is None else int(self.stretches[first_row])
        samples = first + np.arange(count)
        rows = np.searchsorted(self.starts, samples, side="right") - 1
        positions = self.begins[rows] + (samples - self.starts[rows]) // self.of_position
        return rows, positions


def _lengths(counts: Array, longest: int) -> Array:
    """How many positions each stretch has, where users have so many.

    >>> _lengths(np.array([0, 5, 4]), 4).tolist()
    [4, 1, 4]
    """
    pieces = stretches_of(counts, longest)
    lengths = np.full(pieces.sum(), longest)
    last = np.cumsum(pieces)[pieces > 0] - 1
    lengths[last] = (counts - (pieces - 1) * longest)[pieces > 0]
    return lengths


def _starts(lengths: Array) -> Array:
    starts: Array = np.concatenate([[0], np.cumsum(lengths)])
    return starts
