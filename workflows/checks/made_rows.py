"""The rows of a dataset with one row per user: its samples, made as the feed makes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from ...dataloader.user_check import StoredUsers, UserCheck
from ...dataloader.users.drawing import Drawing, draw_targets, own_items
from ...foundation.exceptions import MerlinSimError
from ...foundation.hashing import draw_below_arrays, sample_key_arrays
from ...schemas.channels import POSITIVE_HISTORY, TARGET_ITEM_FEATURES, USER_FEATURES
from ...schemas.dataset import DatasetDirectory
from ...schemas.item_table import ItemTable
from ...schemas.parquet.footer import UNREADABLE, why
from ...schemas.users_layout import UsersLayout
from ..engine.backend import lists_of_arrow
from ..operators.sample_kernels import select_prefixes
from . import kernels
from .checked_rows import Array, CheckedRows, first_row, whole_column

SAMPLES = 1 << 18


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
    def _layout(self) -> UsersLayout:
        assert self.dataset.users is not None
        return self.dataset.users

    @cached_property
    def parts(self) -> list[tuple[Path, int]]:
        """Files and row groups."""
        parts = []
        for path in self.dataset.stored_files(self.mapping):
            parts += [(path, group) for group in range(pq.read_metadata(path).num_row_groups)]
        return parts

    @cached_property
    def _check(self) -> UserCheck:
        spec, channels = self.dataset.spec.feature_spec, self.dataset.channels
        largest = {name: int(spec[name].cardinality or 0) for name in channels[USER_FEATURES]}
        last_item = int(spec[channels[TARGET_ITEM_FEATURES][0]].cardinality or 0)
        layout = self._layout
        names = (layout.positions, layout.times, layout.same_time)
        return UserCheck(largest, layout.history, last_item, *names)

    def rows_of(self, part: tuple[Path, int]) -> int:
        """How many samples a part has."""
        path, group = part
        with pq.ParquetFile(path) as file:
            table = file.read_row_group(group, columns=list(self._layout.positions[self.mapping]))
        begins, ends = (np.asarray(column) for column in table.columns)
        positions = int((ends.astype(np.int64) - begins.astype(np.int64)).sum())
        return self._layout.samples_per_position * positions

    def read(self, part: tuple[Path, int]) -> Iterator[CheckedRows]:
        """Make the samples of a row group of users, some at a time."""
        path, group = part
        users = self.dataset.channels[USER_FEATURES]
        layout = self._layout
        lists = [layout.history, *filter(None, (layout.times, layout.same_time))]
        names = [*users, *layout.positions[self.mapping], *lists]
        try:
            with pq.ParquetFile(path) as file:
                table = file.read_row_group(group, columns=names)
                first = first_row(file.metadata, group)
        except UNREADABLE as error:
            raise MerlinSimError(
                f"{path}, row group {group}: cannot be read ({why(error)})."
            ) from error
        columns = {n: whole_column(path, group, n, table[n].combine_chunks()) for n in names}
        items, starts = lists_of_arrow(columns[self._layout.history])
        ids, begins, ends = (
            [np.asarray(columns[name]).astype(np.int64) for name in chosen]
            for chosen in (users, *([name] for name in self._layout.positions[self.mapping]))
        )
        of_users = dict(zip(users, ids, strict=True))
        ranges = {self.mapping: (begins[0], ends[0])}
        times, same_time = None, None
        if layout.times is not None:
            times = lists_of_arrow(columns[layout.times], "float64")
        if layout.same_time is not None:
            same_time = lists_of_arrow(columns[layout.same_time])
        self._check(
            StoredUsers(str(path), first, of_users, items, starts, ranges, times, same_time)
        )
        rows, positions = select_prefixes(ids[0], *begins, *ends, 0, 0, 1)
        seen = positions
        if same_time is not None:
            seen = positions - same_time[0][starts[rows] + positions]
        own = own_items(items, starts) if self._layout.negatives_not_in_history else None
        step = max(1, SAMPLES // self._layout.negatives_per_positive)
        for begin in range(0, len(rows), step):
            chosen = slice(begin, begin + step)
            of_users = {name: i[rows[chosen]] for name, i in zip(users, ids, strict=True)}
            where = (rows[chosen], positions[chosen], seen[chosen])
            yield self._samples(of_users, items, starts, *where, own)

    @cached_property
    def _drawing(self) -> Drawing:
        table = ItemTable(self.dataset.path / self._layout.item_table)
        return Drawing.of(table.population(self._layout.negatives))

    def _samples(
        self,
        users: dict[str, Array],
        items: Array,
        starts: Array,
        rows: Array,
        positions: Array,
        seen: Array,
        own: Array | None,
    ) -> CheckedRows:
        """Each position's positive, and its twins."""
        layout, channels = self._layout, self.dataset.channels
        history = self.dataset.spec.feature_spec[channels[POSITIVE_HISTORY][0]]
        (longest,) = history.dimensions or (1,)
        hashes, lengths = kernels.hash_windows(items, starts, rows, seen, longest)
        table = ItemTable(self.dataset.path / layout.item_table)
        population = table.population(layout.negatives)
        count, several = len(rows), layout.negatives_per_positive
        twins = np.repeat(np.arange(several), count)
        user, of_twins = np.tile(next(iter(users.values())), several), np.tile(positions, several)
        first = np.zeros_like(twins)  # draw 0 of a sample of label 0 is its target
        keys = sample_key_arrays(layout.seed, user, of_twins, first, twins, np)
        if own is None:
            drawn = population.at(draw_below_arrays(keys, first, population.size, np), np)
        else:
            owners = np.tile(rows, several)
            drawn = draw_targets(keys, self._drawing, own, starts[owners], starts[owners + 1])
        targets = np.concatenate([items[starts[rows] + positions], drawn])
        times = several + 1
        item, *features = channels[TARGET_ITEM_FEATURES]
        columns = {name: np.tile(values, times) for name, values in users.items()} | {item: targets}
        for name, feature in zip(features, layout.item_features, strict=True):
            columns[name] = table.feature(feature)[targets]
        labels = np.repeat(np.array([1, 0], np.int8), [count, several * count])
        last = np.where(seen > 0, items[starts[rows] + np.maximum(seen, 1) - 1], 0)
        seen_by_all = (np.tile(hashes, times), np.tile(lengths, times))
        return CheckedRows.of(labels, columns, seen_by_all, np.tile(last, times))
