"""Numbers made of what came before a sample, of all interactions with what it targets.

A time is compared as its rank among the times of a file, a whole number for each sample that the
host works out once. Of sorted ``id * span + rank`` one search finds what stands before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf

from ..foundation.in_xla import search_sorted
from ..schemas.dataset_files import SECONDS, TAKEN
from ..schemas.item_table import ID
from ..schemas.recency import HALF_LIFE, LOGARITHMS, MOST_DAYS, days_of
from ..schemas.users_layout import ENCODING_KINDS, POPULARITY_ADDS, POPULARITY_OF, EncodingOf
from .row_check import DataError, readable

Array = npt.NDArray[Any]
BY_SECONDS = COUNTED, DAY = "counted", "day"
"""The order of samples' times among those of counted interactions, and among all days from their
first one on."""
TimeIndices = Mapping[str, tf.Tensor]
Rows = tuple[tf.Tensor, tf.Tensor]
"""Where the rows of ids begin, and where they end."""


@dataclass(frozen=True)
class ComparedTimes:
    """Times to compare those of samples with."""

    times: Array
    """All that occur, ascending."""
    side: str
    """``right``: what has the sample's own time stands before it. ``left``: it does not."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.times)

    def indices(self, times: Array) -> Array:
        """The index of each of some times: how many of them stand before it."""
        return np.searchsorted(self.times, times, self.side)  # type: ignore[call-overload,no-any-return]


@dataclass(frozen=True)
class Days:
    """The days from the first to the last that occur, to compare the days of samples with."""

    first: int
    last: int

    @property
    def count(self) -> int:
        """How many days are distinguished: what is long after the last one is equally late."""
        return self.last - self.first + MOST_DAYS

    def indices(self, times: Array) -> Array:
        """The index of each of some times: how many days after the first it is."""
        return np.clip(days_of(times) - self.first, 0, self.count)


class InTime:
    """Rows of ids, in the order of time.

    Args:
        ids: [rows] From 1, ascending.
        time_indices: [rows] Of their times, of one id ascending.
        times: How many times there are.
        last: The last id.
    """

    def __init__(self, ids: Array, time_indices: Array, times: int, last: int) -> None:
        self._span = times + 1
        self._keys = tf.constant(ids * self._span + time_indices)
        starts = np.searchsorted(ids, np.arange(last + 2))
        self._starts = tf.constant(starts, tf.int64)

    def rows_before(self, ids: tf.Tensor, time_index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Where the rows of ids begin, and where those before a time end; int64."""
        keys = tf.cast(ids, tf.int64) * self._span + tf.cast(time_index, tf.int64)
        start = tf.gather(self._starts, ids)
        return start, tf.maximum(start, search_sorted(self._keys, keys))

    def time_indices_of_rows(self, ids: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """The indices of the times of rows, each of which is one of its id's; int64."""
        return tf.gather(self._keys, rows) - tf.cast(ids, tf.int64) * self._span

    def rows(self) -> tuple[Array, Array]:
        """The ids of all rows, and the indices of their times, in this order: [rows] each."""
        ids, time_indices = np.divmod(self._keys.numpy(), self._span)
        return ids, time_indices

    @cached_property
    def counts(self) -> Array:
        """How many rows of all ids there are at each time, by its index: [times]."""
        return np.bincount(self.rows()[1], minlength=self._span - 1)

    def has_rows(self, ids: tf.Tensor) -> tf.Tensor:
        """Whether ids have any row."""
        return tf.gather(self._starts, tf.cast(ids, tf.int64) + 1) > tf.gather(self._starts, ids)


class CountedRows(NamedTuple):
    """The interactions that an encoding counts: of its feature's ids, in the order of time."""

    in_time: InTime
    taken: Array
    """[rows] 1 where one was taken."""
    times: ComparedTimes | Days
    """What theirs, and those of samples, are compared with."""


class SeenBefore:
    """A number made of what came of a target's feature before a sample."""

    compared_with = COUNTED
    """What samples' times are compared with."""

    def __init__(self, encoding: EncodingOf, counted: CountedRows) -> None:
        self.feature = encoding.feature
        self._encoding, self._in_time = encoding, counted.in_time

    def __call__(self, ids: tf.Tensor, time_indices: TimeIndices) -> tf.Tensor:
        """Make the numbers of target ids of any shape."""
        time_index = tf.broadcast_to(time_indices[self.compared_with], tf.shape(ids))
        return self._made(ids, time_index, self._in_time.rows_before(ids, time_index))

    def _made(self, ids: tf.Tensor, time_index: tf.Tensor, rows: Rows) -> tf.Tensor:
        raise NotImplementedError


class Count(SeenBefore):
    """How often it was shown."""

    def __init__(self, encoding: EncodingOf, counted: CountedRows) -> None:
        """Take logarithms on the host, for every device to have the same."""
        super().__init__(encoding, counted)
        most = int(np.diff(counted.in_time._starts.numpy()).max(initial=0))
        self._logarithms = tf.constant(np.log1p(np.arange(most + 1)), tf.float32)

    def _made(self, ids: tf.Tensor, time_index: tf.Tensor, rows: Rows) -> tf.Tensor:
        start, stop = rows
        return tf.gather(self._logarithms, stop - start)


class Popularity(SeenBefore):
    """How many of 100,000 rows showed it."""

    def __init__(self, encoding: EncodingOf, counted: CountedRows) -> None:
        super().__init__(encoding, counted)
        of_all = self._count_all(counted.in_time.counts)
        self._all = tf.constant(np.append(0, of_all) + POPULARITY_ADDS, tf.float64)

    def _count_all(self, counts: Array) -> Array:
        """Count the rows of all ids until each time."""
        return np.cumsum(counts)

    def _count(self, ids: tf.Tensor, time_index: tf.Tensor, rows: Rows) -> tf.Tensor:
        start, stop = rows
        return tf.cast(stop - start, tf.float64)

    def _made(self, ids: tf.Tensor, time_index: tf.Tensor, rows: Rows) -> tf.Tensor:
        count = self._count(ids, time_index, rows)
        share = POPULARITY_OF * count / tf.gather(self._all, time_index)
        return tf.cast(tf.math.log1p(share), tf.float32)


class RecentPopularity(Popularity):
    """How many of 100,000 rows showed it, where a row's weight halves in a week.

    It is as of the newest of all counted rows before a sample.
    """

    def __init__(self, encoding: EncodingOf, counted: CountedRows) -> None:
        assert isinstance(counted.times, ComparedTimes)
        self._times = counted.times.times
        super().__init__(encoding, counted)
        ids, at = counted.in_time.rows()
        counts = recent_rows_until(ids, self._times[at], np.ones(len(ids)))
        self._until_row = tf.constant(np.append(counts, 0.0), tf.float64)
        weeks = (self._times - self._times[0]) / HALF_LIFE
        newest = weeks[newest_counted(counted.in_time.counts)]
        self._weeks, self._newest = (
            tf.constant(of_time, tf.float64) for of_time in (weeks, np.append(0.0, newest))
        )

    def _count_all(self, counts: Array) -> Array:
        until: Array = recent_rows_until(np.zeros(len(counts)), self._times, counts)
        return until[newest_counted(counts)]

    def _count(self, ids: tf.Tensor, time_index: tf.Tensor, rows: Rows) -> tf.Tensor:
        start, stop = rows
        row = tf.maximum(stop - 1, 0)
        own = self._in_time.time_indices_of_rows(ids, row)  # of an id without rows any number
        own = tf.clip_by_value(own, 0, len(self._times) - 1)
        passed = tf.gather(self._newest, time_index) - tf.gather(self._weeks, own)
        count = tf.gather(self._until_row, row) * tf.pow(tf.constant(0.5, tf.float64), passed)
        return tf.where(stop > start, count, tf.zeros_like(count))


def newest_counted(counts: Array) -> Array:
    """The index of the newest time until each at which rows are counted; 0 before any.

    >>> newest_counted(np.array([0, 2, 0, 1])).tolist()
    [0, 1, 1, 3]
    """
    return np.maximum.accumulate(np.where(counts > 0, np.arange(len(counts)), 0))


@numba.njit(cache=True, nogil=True)
def recent_rows_until(ids: Array, seconds: Array, counts: Array) -> Array:
    """Count the rows of its id until each row, as of that row; ids and their times ascend: [rows].

    ``counts``, [rows], says how many rows each of them stands for.
    """
    found = np.empty(len(ids))
    for row in range(len(ids)):
        found[row] = counts[row]
        if row and ids[row] == ids[row - 1]:
            passed = seconds[row] - seconds[row - 1]
            found[row] += found[row - 1] * 0.5 ** (passed / HALF_LIFE)
    return found


class Share(SeenBefore):
    """The share of its rows that were taken."""

    def __init__(self, encoding: EncodingOf, counted: CountedRows) -> None:
        super().__init__(encoding, counted)
        self._taken = tf.constant(np.append(0, np.cumsum(counted.taken)), tf.float64)

    def _made(self, ids: tf.Tensor, time_index: tf.Tensor, rows: Rows) -> tf.Tensor:
        start, stop = rows
        shown = tf.cast(stop - start, tf.float64)
        taken = tf.gather(self._taken, stop) - tf.gather(self._taken, start)
        prior, smoothing = self._encoding.prior, self._encoding.smoothing
        share = (taken + smoothing * prior) / tf.where(shown > 0, shown + smoothing, 1.0)
        return tf.cast(tf.where(shown > 0, share, prior), tf.float32)


class DaysSince(SeenBefore):
    """How many days ago it was shown last, on an earlier day; rows are days."""

    compared_with = DAY

    def __init__(self, encoding: EncodingOf, counted: CountedRows) -> None:
        super().__init__(encoding, counted)
        self._logarithms = tf.constant(LOGARITHMS)

    def _made(self, ids: tf.Tensor, time_index: tf.Tensor, rows: Rows) -> tf.Tensor:
        start, stop = rows
        last = self._in_time.time_indices_of_rows(ids, tf.maximum(stop - 1, 0))
        days = tf.minimum(tf.cast(time_index, tf.int64) - last, MOST_DAYS)
        return tf.gather(self._logarithms, tf.where(stop > start, days, MOST_DAYS))


ENCODINGS: dict[str, type[SeenBefore]] = dict(
    zip(ENCODING_KINDS, (Count, Popularity, DaysSince, RecentPopularity, Share), strict=True)
)
"""What makes the number of each kind."""


def read_events(
    encodings: Mapping[str, EncodingOf], directory: Path, last_ids: Mapping[str, int]
) -> tuple[dict[str, ComparedTimes | Days], dict[str, SeenBefore]]:
    """Read the interactions that encodings count: by number, what makes it of them."""
    features = {encoding.events: encoding.feature for encoding in encodings.values()}
    columns = [ID, SECONDS, TAKEN]
    tables = {n: read_rows(directory / n, columns, last_ids[f]) for n, f in features.items()}
    seconds = np.unique(np.concatenate([np.asarray(table[SECONDS]) for table in tables.values()]))
    kinds = {name: ENCODINGS[encoding.kind] for name, encoding in encodings.items()}
    compared: dict[str, ComparedTimes | Days] = {
        COUNTED: ComparedTimes(seconds, "left"),
        DAY: Days(*days_of(seconds[[0, -1]]).tolist()),
    }
    rows: dict[tuple[str, str], CountedRows] = {}
    found: dict[str, SeenBefore] = {}
    for name, encoding in encodings.items():
        times = compared[kinds[name].compared_with]
        key = encoding.events, kinds[name].compared_with
        if key not in rows:
            last = last_ids[encoding.feature]
            rows[key] = _counted(tables[encoding.events], times, last)
        found[name] = kinds[name](encoding, rows[key])
    return {kind.compared_with: compared[kind.compared_with] for kind in kinds.values()}, found


def _counted(table: pa.Table, times: ComparedTimes | Days, last: int) -> CountedRows:
    """Order the interactions with ids; of days there is one of each day."""
    ids, at = np.asarray(table[ID]), times.indices(np.asarray(table[SECONDS]))
    order = np.lexsort((at, ids))
    if isinstance(times, Days):
        order = order[np.diff(ids[order] * times.count + at[order], prepend=-1) > 0]
    in_time = InTime(ids[order], at[order], times.count, last)
    return CountedRows(in_time, np.asarray(table[TAKEN])[order], times)


def read_rows(path: Path, names: list[str], last: int) -> pa.Table:
    """Read columns of a file of interactions, or of values in time, whose ids are 1 to ``last``."""
    with readable(path):
        table = pq.read_table(path, columns=names)
    for name in names:
        if table[name].null_count:
            raise DataError(f"{path}: column {name} holds a missing value.")
    ids = np.asarray(table[ID])
    if len(ids) and not 1 <= ids.min() <= ids.max() <= last:
        wrong = int(np.argmax((ids < 1) | (ids > last)))
        raise DataError(
            f"{path}, row {wrong + 1}: column {ID} should hold 1 to {last}. Received: {ids[wrong]}."
        )
    return table
