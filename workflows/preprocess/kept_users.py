"""Of one bucket of the log: the users with enough interactions, and what its order says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...schemas.users_layout import JOINS, SAMPLE
from ..behaviour_columns import EARLIER, BehaviourColumns
from ..checks.feature_counts import auc_of_counts
from ..frames import (
    differs,
    join_keys,
    keys_of,
    order_by,
    order_of_rows,
    ordered_codes,
    small_numbers,
)
from ..interactions import order_within_times
from ..known_values import changes_by_code, codes_of, cycles_of, fill_as_of
from ..rules import SampleRules
from ..schedulers import write_arrow
from .earlier_histories import (
    FITTED,
    SAMPLES_SO_FAR,
    TAKEN_SO_FAR,
    columns_of_rows,
    roles_of_rows,
    stored_of_items,
)
from .user_buckets import DealtFiles

RANKS = 16
"""Into so many shares of its group the rank of a row is put."""
LEAST_ROWS = 100
"""Fewer rows say nothing."""
SORTED_SHARE = 0.65
"""From this share of rising pairs on, or from its complement down, rows count as sorted."""
TELLING_AUC = 0.6
"""From this AUC on, or from its complement down, the rank of a row predicts its label."""

Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass
class FileOrder:
    """Counts, of rows that have one user and one time, in the order of the file."""

    same_time: int = 0
    """Rows that have the user and the time of an earlier row."""
    repeated: int = 0
    """Those of them that have its item, too."""
    pairs: int = 0
    """Neighbouring rows of different items."""
    rising: int = 0
    """Those of them whose second item has the greater key."""
    by_rank: Codes = field(default_factory=lambda: np.zeros((RANKS, 2), np.int64))
    """[ranks, 2] By a row's rank among the rows of its time and by its label, how many."""

    @classmethod
    def of(cls, users: Codes, times: pa.Array, items: pa.Array, labels: Codes | None) -> FileOrder:
        """Count rows that are all of their users.

        >>> users, times = np.array([1, 1, 1, 1]), pa.array([5, 5, 5, 6])
        >>> found = FileOrder.of(users, times, pa.array([3, 4, 3, 1]), np.array([1, 0, 0, 1]))
        >>> found.same_time, found.repeated, found.pairs, found.rising, found.auc_of_rank()
        (2, 1, 2, 1, 0.0)
        """
        time_codes = small_numbers(times)
        order = order_of_rows([users, time_codes])
        begins = differs(users[order]) | differs(time_codes[order])
        sizes = np.diff(np.append(np.flatnonzero(begins), len(order)))
        of = np.repeat(sizes, sizes)
        several = of > 1
        keys, groups = (
            ordered_codes(items.take(pa.array(order[several]))),
            np.cumsum(begins)[several],
        )
        steps = np.diff(keys)[~begins[several][1:]]
        found = cls(
            same_time=len(order) - len(sizes),
            repeated=len(keys) - len(np.unique(join_keys([groups, keys]))),
            pairs=int((steps != 0).sum()),
            rising=int((steps > 0).sum()),
        )
        if labels is not None:
            rank = np.arange(len(order)) - np.repeat(np.flatnonzero(begins), sizes)
            share = (rank[several] * RANKS) // of[several]
            np.add.at(found.by_rank, (share, labels[order][several]), 1)
        return found

    def add(self, other: FileOrder) -> None:
        """Add the counts of other users."""
        for name, counts in vars(other).items():
            setattr(self, name, getattr(self, name) + counts)

    def auc_of_rank(self) -> float | None:
        """How well a row's rank among the rows of its time separates label 1 from 0."""
        return auc_of_counts(np.arange(RANKS, dtype=np.float64), self.by_rank)

    def lines(self, order_counts: bool) -> list[str]:
        """Report what the order of the file says; it counts where samples see it."""
        found = []
        share = self.rising / max(1, self.pairs)
        if self.pairs >= LEAST_ROWS and not 1 - SORTED_SHARE < share < SORTED_SHARE:
            found.append(
                f"the item's key rises in {share:.1%} of the {self.pairs:,} pairs of neighbouring "
                "rows that have one user and one time: the file is sorted by it"
            )
        auc = self.auc_of_rank()
        if self.by_rank.sum() >= LEAST_ROWS and auc is not None:
            if not 1 - TELLING_AUC < auc < TELLING_AUC:
                found.append(
                    f"the rank of a row in the file, among the rows of its user and time, tells "
                    f"its label (AUC {auc:.3f})"
                )
        if not found:
            return []
        if order_counts:
            advice = (
                "WARNING: models learn this order in place of behaviour. Leave out "
                "`--order_of_equal_times log`, or give `hash`"
            )
        else:
            advice = "no sample sees this order: a hash orders rows of one time"
        return [*found, advice]


EVENTS, OTHERS = "events", "others"
Given = Mapping[str, tuple[pa.Array, pa.Array, str]]
"""By name of an item feature that does not stand in the log: items, their values, and the value of
items that are not among them."""


@dataclass(frozen=True)
class KeptBucket:
    """Rows that are left of a bucket."""

    bucket: int
    users: int
    rows: int
    others: int
    """Rows of users who are not kept, of the log and of earlier histories."""
    dropped_users: int
    order: FileOrder
    """What the order of the file says of rows of one time."""
    taken: int
    """Rows that join the history: all, but for a log with labels or behaviours."""
    earlier_rows: int
    """Rows of an earlier dataset's histories that stand before these."""
    mixed: str
    """A user of whom a row of an earlier part comes after one of a later part, where files are a
    split, and both times; or nothing."""
    late: int
    """Rows that are no later than the newest of these of their user."""
    changing: dict[str, int]
    """By stored column of users, how many of those kept have different values in time."""


@dataclass(frozen=True)
class KeepLongUsers:
    """Drops users with too few interactions, and writes the rows of the others.

    Where the log has labels or behaviours, the interactions of a user are the rows that join the
    history. Where it continues an earlier dataset, a user's interactions are those of both, and
    users need one in the log.
    """

    columns: BehaviourColumns
    rules: SampleRules
    buckets: DealtFiles
    """Where the log stands, dealt out by user."""
    earlier: DealtFiles | None
    """Where the earlier histories stand, dealt out likewise."""
    directory: Path
    given: Given
    """Item features that do not stand in the log."""

    def __call__(self, bucket: int) -> KeptBucket:
        """Work on a bucket; what is kept goes to ``directory`` in files named by its number."""
        log = self.buckets.bucket(bucket)
        given = [n for n in stored_of_items(self.columns) if n in log.column_names]
        names = (*columns_of_rows(self.columns), *self.columns.roles, *self.rules.part_columns)
        names = (*names, *given)
        rows, before = log.select([*names, *self.columns.log_rows]), 0
        if self.earlier is not None:
            earlier = self.earlier.bucket(bucket)
            before = earlier.num_rows
            for name in self.rules.part_columns:
                earlier = earlier.append_column(name, pa.array(np.zeros(before, np.int8)))
            there = earlier.select(names)
            for name in self.columns.log_rows:  # it is before all others
                there = there.append_column(name, pa.array(np.full(before, -1, np.int64)))
            both = pa.concat_tables([there, rows], promote_options="default")
            rows = both.select(rows.column_names)
        users = rows[self.columns.user].combine_chunks().dictionary_encode()
        keys, codes = users.dictionary, np.asarray(users.indices).astype(np.int64)
        times = rows[self.columns.timestamp].combine_chunks()
        of_users, features = self.columns.stored_of_users, self.columns.features
        rows = fill_as_of(rows, of_users, codes, times, cycles_of(features))
        roles = roles_of_rows(rows, self.columns)
        so_far = {name: np.zeros(len(keys), np.int64) for name in (TAKEN_SO_FAR, SAMPLES_SO_FAR)}
        fitted = np.zeros(len(codes), np.int8)
        if self.earlier is not None:
            for name, counts in so_far.items():
                counts[codes[:before]] = np.asarray(earlier[name])
            fitted[:before] = np.asarray(earlier[FITTED])
        joins = codes[before:][(roles[before:] & JOINS) > 0]
        so_far[TAKEN_SO_FAR] += np.bincount(joins, minlength=len(keys))
        in_log = np.bincount(codes[before:], minlength=len(keys)) > 0
        is_long = so_far[TAKEN_SO_FAR] >= self.rules.shortest_sequence_for_user
        is_kept = (is_long & in_log)[codes]
        kept = log.filter(pa.array(is_kept[before:])).combine_chunks()
        rows = rows.append_column(FITTED, pa.array(fitted))
        for name, counts in so_far.items():
            rows = rows.append_column(name, pa.array(counts[codes]))
        if not is_kept.all():
            others = _encoded(rows.filter(pa.array(~is_kept)).combine_chunks())
            write_arrow(self.file(bucket, OTHERS), others.schema, others.to_batches())
        if kept.num_rows:
            events = rows.filter(pa.array(is_kept))
            if self.columns.continued:
                samples = pc.cast(events[SAMPLES_SO_FAR], pa.float64())
                events = events.append_column(EARLIER, samples)
            events = _encoded(self._with_given(events.combine_chunks()))
            write_arrow(self.file(bucket), events.schema, events.to_batches())
        return KeptBucket(
            bucket=bucket,
            users=int((is_long & in_log).sum()),
            rows=kept.num_rows,
            others=int((~is_kept).sum()),
            dropped_users=int((in_log & ~is_long).sum()),
            order=self._order_of_file(kept),
            taken=int((roles_of_rows(kept, self.columns) & JOINS > 0).sum()),
            earlier_rows=int(is_kept[:before].sum()),
            mixed=self._mixed(rows, keys, codes, is_kept & ((roles & SAMPLE) > 0)),
            late=self._count_late(rows, codes, before, is_kept),
            changing={name: _count_changing(rows[name], codes, is_kept) for name in of_users},
        )

    def _mixed(self, rows: pa.Table, keys: pa.Array, codes: Codes, is_sample: Mask) -> str:
        """Find a user whose parts do not follow each other in time."""
        for name in self.rules.part_columns:
            indices = np.flatnonzero(is_sample)
            times = rows[self.columns.timestamp].combine_chunks()
            ties = order_within_times(rows, self.columns, self.rules)
            parts = np.asarray(rows[name]).astype(np.int64)
            order = order_by(codes, [keys_of(times), keys_of(pa.array(parts)), *ties], indices)
            wrong = np.flatnonzero((np.diff(parts[order]) < 0) & (np.diff(codes[order]) == 0))
            if len(wrong):
                before, after = order[wrong[0]], order[wrong[0] + 1]
                return f"{keys[codes[after]]} at {times[after]}, after {times[before]}"
        return ""

    def _count_late(self, rows: pa.Table, codes: Codes, before: int, is_kept: Mask) -> int:
        if not before:
            return 0
        time_codes = ordered_codes(rows[self.columns.timestamp].combine_chunks())
        newest = np.full(int(codes.max()) + 1, -1, np.int64)
        np.maximum.at(newest, codes[:before], time_codes[:before])
        late = time_codes[before:] <= newest[codes[before:]]
        return int((late & is_kept[before:]).sum())

    def file(self, bucket: int, of: str = EVENTS) -> Path:
        """The file of a bucket's interactions of users who are kept, or of ``OTHERS``."""
        return self.directory / of / f"{bucket:06d}.arrow"

    def _with_given(self, events: pa.Table) -> pa.Table:
        items = events[self.columns.item].combine_chunks().dictionary_encode()
        for name, (keys, values, otherwise) in self.given.items():
            found = values.take(pc.index_in(items.dictionary, keys)).fill_null(otherwise)
            coded = found.dictionary_encode()
            indices = coded.indices.take(items.indices)
            column = pa.DictionaryArray.from_arrays(indices, coded.dictionary)
            events = events.append_column(name, column)
        return events

    def _order_of_file(self, kept: pa.Table) -> FileOrder:
        labels = None
        for name in self.columns.labels:
            labels = np.asarray(kept[name]).astype(np.int64)
        users = np.asarray(kept[self.columns.user].combine_chunks().dictionary_encode().indices)
        times = kept[self.columns.timestamp].combine_chunks()
        items = kept[self.columns.item].combine_chunks()
        return FileOrder.of(users.astype(np.int64), times, items, labels)


def _count_changing(values: pa.ChunkedArray, codes: Codes, is_kept: Mask) -> int:
    if not is_kept.any():
        return 0
    own, users = np.unique(codes[is_kept], return_inverse=True)
    numbered = codes_of(values.combine_chunks().filter(pa.array(is_kept)))
    return int(changes_by_code(numbered, users).sum())


def _encoded(table: pa.Table) -> pa.Table:
    """Text as dictionaries: what is made of a key is made once."""
    columns = [
        column.combine_chunks().dictionary_encode() if pa.types.is_string(column.type) else column
        for column in table.columns
    ]
    return pa.table(dict(zip(table.column_names, columns, strict=True)))
