"""The columns of a batch of samples, and the features of items as TensorFlow ops.

A feature is known at a sample's own time. A time is compared as its rank among the times of a
file, a whole number for each sample that the host works out once. Of sorted ``id * span + rank``
one search finds what stands before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
from merlin.schema import Schema

from ..foundation.gpu_forms import has_gpu_forms
from ..foundation.hashing import CROSS_SALT
from ..foundation.in_xla import search_sorted
from ..schemas.channels import (
    CONTEXT_FEATURES,
    HISTORY_TIME_INTERVALS,
    LABEL,
    NEGATIVE_HISTORY,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    UNITS_OF_INTERVALS,
    USER_FEATURES,
    USER_NUMERICAL,
)
from ..schemas.dataset import DatasetDirectory
from ..schemas.dataset_files import SECONDS, TAKEN, TIME, VALUE
from ..schemas.feature_spec import Feature
from ..schemas.item_table import COUNT, ID, ItemTable
from ..schemas.recency import HALF_LIFE, LOGARITHMS, MOST_DAYS, days_of
from ..schemas.users_layout import (
    ENCODING_KINDS,
    POPULARITY_ADDS,
    POPULARITY_OF,
    CrossOf,
    EncodingOf,
)
from .draws import Items, mix
from .row_check import DataError, last_ids, readable
from .user_check import check_items

Array = npt.NDArray[Any]
CHANGED = "changed"
"""The order of samples' times among the times of changes."""
BY_SECONDS = COUNTED, DAY = "counted", "day"
"""The same among the times of counted interactions, and among all days from their first one on."""
TimeIndices = Mapping[str, tf.Tensor]
Rows = tuple[tf.Tensor, tf.Tensor]
"""Where the rows of ids begin, and where they end."""


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

    def count_at_times(self) -> Array:
        """Count the rows of all ids at each time, by its index: [times]."""
        return np.bincount(self.rows()[1], minlength=self._span - 1)

    def has_rows(self, ids: tf.Tensor) -> tf.Tensor:
        """Whether ids have any row."""
        return tf.gather(self._starts, tf.cast(ids, tf.int64) + 1) > tf.gather(self._starts, ids)


class ItemFeature:
    """Ids, numbers, lists or vectors by item.

    The table, [items + 1, ...], has those known last, of item 0 zeros; ``changes`` has the others.
    """

    def __init__(
        self, table: Array, dtype: tf.DType, changes: tuple[InTime, Array] | None = None
    ) -> None:
        self._table = tf.constant(table, dtype)
        self._changes = None
        if changes is not None:
            self._changes = changes[0], tf.constant(changes[1], dtype)

    def __call__(self, items: tf.Tensor, time_indices: TimeIndices) -> tf.Tensor:
        """Look up items of any shape; time indices have that shape, or broadcast to it."""
        found = tf.gather(self._table, items)
        if self._changes is None:
            return found
        in_time, values = self._changes
        start, stop = in_time.rows_before(
            items, tf.broadcast_to(time_indices[CHANGED], tf.shape(items))
        )
        # Before the first value was known, an item has that.
        known = tf.gather(values, tf.minimum(tf.maximum(start, stop - 1), len(values) - 1))
        changes = in_time.has_rows(items)
        extra = [1] * (len(found.shape) - len(changes.shape))
        changes = tf.reshape(changes, tf.concat([tf.shape(changes), extra], 0))
        return tf.where(changes, known, found)


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
        of_all = self._count_all(counted.in_time.count_at_times())
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
        newest = weeks[newest_counted(counted.in_time.count_at_times())]
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


def cross_ids(cross: CrossOf, ids: Sequence[tf.Tensor], dtype: tf.DType) -> tf.Tensor:
    """Hash ids to 1..buckets; 0 where one of them is 0."""
    hashed, known = tf.constant(CROSS_SALT, tf.uint64), tf.constant(True)
    for of_feature in ids:
        hashed = mix(tf.bitwise.bitwise_xor(hashed, tf.cast(of_feature, tf.uint64)))
        known &= of_feature > 0
    bucket = tf.cast(hashed % tf.constant(cross.buckets, tf.uint64), dtype) + 1
    return tf.where(known, bucket, tf.zeros_like(bucket))


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


def read_changes(files: Mapping[str, Path], last: int) -> tuple[ComparedTimes, dict[str, Any]]:
    """Read the values of items in time: by column its rows, and the value of each."""
    tables = {name: _read(path, [ID, TIME, VALUE], last) for name, path in files.items()}
    times = np.unique(np.concatenate([np.asarray(table[TIME]) for table in tables.values()]))
    found = {}
    for name, table in tables.items():
        ids, at = np.asarray(table[ID]), np.searchsorted(times, np.asarray(table[TIME]))
        order = np.lexsort((at, ids))
        values = table[VALUE].combine_chunks()
        if not pa.types.is_primitive(values.type):
            values = np.asarray(values.flatten()).reshape(len(ids), -1)
        in_time = InTime(ids[order], at[order], len(times), last)
        found[name] = in_time, np.asarray(values)[order]
    return ComparedTimes(times, "right"), found


def read_events(
    encodings: Mapping[str, EncodingOf], directory: Path, last_ids: Mapping[str, int]
) -> tuple[dict[str, ComparedTimes | Days], dict[str, SeenBefore]]:
    """Read the interactions that encodings count: by number, what makes it of them."""
    features = {encoding.events: encoding.feature for encoding in encodings.values()}
    columns = [ID, SECONDS, TAKEN]
    tables = {n: _read(directory / n, columns, last_ids[f]) for n, f in features.items()}
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


def _read(path: Path, names: list[str], last: int) -> pa.Table:
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


ITEM_CHANNELS = (TARGET_ITEM_FEATURES, POSITIVE_HISTORY, NEGATIVE_HISTORY)


@dataclass(frozen=True)
class SampleColumns:
    """The columns that are asked for, and the table of items in memory."""

    label: str | None
    """The column of labels, if it is asked for."""
    label_type: tf.DType
    user: str
    """The feature that identifies users."""
    users: tuple[str, ...]
    """The features and numbers of users, and contexts, that are asked for."""
    per_interaction: frozenset[str]
    """Those of them that belong to the interaction."""
    channels: Mapping[str, Mapping[int, str]]
    """By channel of items, the columns that are asked for, by their feature's index: the item has
    0."""
    intervals: str | None
    """The column of time intervals, if it is asked for."""
    seconds: float
    """The unit of time intervals."""
    width: int
    """Interactions that a sample sees at most, the newest."""
    negatives_read: int
    """So many of the newest positions of a negative history are drawn; the others hold 0."""
    of_position: int
    """Samples of a position: its negatives, and after them the positive."""
    items: Items
    """What negatives are drawn from."""
    features: tuple[ItemFeature, ...]
    """The ids of each feature of items but the item itself."""
    targets: tuple[str, ...]
    """The names of all target item features; the item has the first."""
    item_columns: Mapping[str, ItemFeature]
    """Numbers, vectors and lists of target items that are asked for."""
    encodings: Mapping[str, SeenBefore]
    """Numbers made of what was there before, that are asked for."""
    lifetime_counts: Mapping[str, int]
    """Numbers that count what a user did before, that are asked for: the feature's index."""
    crosses: Mapping[str, CrossOf]
    """Ids that are hashed of columns of users and targets, that are asked for."""
    compared_times: Mapping[str, ComparedTimes | Days]
    """What samples' times are compared with, where features are those that were known then."""
    types: Mapping[str, tf.DType]
    """By column of ids, its type."""
    end_type: tf.DType
    """Of ``history_end``."""

    @classmethod
    def read(
        cls, dataset: DatasetDirectory, schema: Schema, negatives_read: int | None = None
    ) -> SampleColumns:
        """Find out what the columns of ``schema`` are made of, and read the item table.

        Of a negative history the model reads the newest ``negatives_read`` positions; None for all.
        """
        layout, channels, spec = dataset.users, dataset.channels, dataset.spec
        assert layout is not None
        asked = set(schema.column_names)
        largest = [
            int(spec.feature_spec[name].cardinality or 0) for name in channels[TARGET_ITEM_FEATURES]
        ]
        last_of = last_ids(schema)
        types = {name: id_type(last_of.get(name, 2**31)) for name in asked}
        label = channels[LABEL][0]
        of_label = tf.as_dtype(schema[label].dtype.to_numpy) if label in asked else tf.float32
        intervals = [name for name in channels.get(HISTORY_TIME_INTERVALS, ()) if name in asked]
        numbers = channels.get(USER_NUMERICAL, ())
        types |= dict.fromkeys(numbers, tf.float32)
        of_users = (*channels[USER_FEATURES], *channels.get(CONTEXT_FEATURES, ()), *numbers)
        (width,) = spec.feature_spec[channels[POSITIVE_HISTORY][0]].dimensions or (0,)
        path = dataset.path / layout.item_table
        names = [ID, COUNT, *layout.item_features, *layout.item_columns.values()]
        with readable(path):
            table = pq.read_table(path, columns=list(dict.fromkeys(names)))
        check_items(path, table, layout.item_features, largest, layout.negatives)
        items = ItemTable(path)
        compared_times: dict[str, ComparedTimes | Days] = {}
        changes: dict[str, Any] = {}
        if layout.item_changes:
            files = {name: dataset.path / file for name, file in layout.item_changes.items()}
            compared_times[CHANGED], changes = read_changes(files, largest[0])
        item_columns = {
            name: ItemFeature(_by_item(items, column, spec.feature_spec[name]), kind, changed)
            for name, column in layout.item_columns.items()
            if name in asked
            for changed in [changes.get(column)]
            for kind in [types[name] if spec.feature_spec[name].cardinality else tf.float32]
        }
        encodings = {n: one for n, one in layout.encodings.items() if n in asked}
        counted: dict[str, SeenBefore] = {}
        if encodings:
            last = dict(zip(channels[TARGET_ITEM_FEATURES], largest, strict=True))
            by_seconds, counted = read_events(encodings, dataset.path, last)
            compared_times |= by_seconds
        features = zip(layout.item_features, largest[1:], strict=True)
        return cls(
            label if label in asked else None,
            of_label,
            channels[USER_FEATURES][0],
            tuple(name for name in of_users if name in asked),
            frozenset(layout.per_interaction),
            {
                channel: {k: n for k, n in enumerate(channels.get(channel, ())) if n in asked}
                for channel in ITEM_CHANNELS
            },
            intervals[0] if intervals else None,
            UNITS_OF_INTERVALS[layout.time_unit],
            width,
            width if negatives_read is None else min(width, negatives_read),
            layout.samples_per_position,
            Items(items.counts(layout.negatives), id_type(largest[0])),
            tuple(
                ItemFeature(items.feature(name), id_type(last), changes.get(name))
                for name, last in features
            ),
            tuple(channels[TARGET_ITEM_FEATURES]),
            item_columns,
            counted,
            {
                name: channels[TARGET_ITEM_FEATURES].index(feature)
                for name, feature in layout.lifetime_counts.items()
                if name in asked
            },
            {name: cross for name, cross in layout.crosses.items() if name in asked},
            compared_times,
            types,
            id_type(0),
        )

    def asks_for(self, channel: str) -> bool:
        """Whether any column of a channel is asked for."""
        return bool(self.channels[channel])

    @property
    def reads_targets(self) -> bool:
        """Whether anything of target items is asked for."""
        more = self.item_columns or self.encodings or self.lifetime_counts or self.crosses
        return bool(self.asks_for(TARGET_ITEM_FEATURES) or more)

    def feature_of(self, index: int, items: tf.Tensor, time_indices: TimeIndices) -> tf.Tensor:
        """A feature of items, by its index among those of targets, as known at times; int64."""
        found = self.features[index - 1](items, time_indices) if index else items
        return tf.cast(found, tf.int64)

    def of_histories(
        self, channel: str, items: tf.Tensor, time_indices: TimeIndices
    ) -> dict[str, tf.Tensor]:
        """The columns of histories; ``time_indices``, of samples, broadcast to ``items``."""
        return {
            name: tf.cast(self.features[index - 1](items, time_indices) if index else items, kind)
            for index, name in self.channels[channel].items()
            for kind in [self.types[name]]
        }

    def of_targets(
        self, items: tf.Tensor, time_indices: TimeIndices, of_user: Callable[[str], tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """The columns of target items.

        Args:
            items: [samples], or [users, candidates]; 0 where there is none.
            time_indices: Of the samples, of a shape that broadcasts to that of the items.
            of_user: Gives the ids of a feature of users or contexts, of such a shape.
        """
        ids = {
            name: self.features[index - 1](items, time_indices) if index else items
            for index, name in enumerate(self.targets)
        }
        asked = self.channels[TARGET_ITEM_FEATURES].values()
        made = {name: tf.cast(ids[name], self.types[name]) for name in asked}
        made |= {name: feature(items, time_indices) for name, feature in self.item_columns.items()}
        for name, counted in self.encodings.items():
            made[name] = counted(ids[counted.feature], time_indices)
        for name, cross in self.crosses.items():
            crossed = [ids[n] if n in ids else of_user(n) for n in cross.features]
            found = cross_ids(cross, crossed, self.types[name])
            made[name] = tf.where(items > 0, found, tf.zeros_like(found))[..., None]
        return made


def _by_item(items: ItemTable, column: str, feature: Feature) -> Any:
    width = feature.dimensions[0] if feature.dimensions else None
    if feature.cardinality:
        return items.lists(column, width or 1)
    return items.numbers(column) if width is None else items.vectors(column, width)


def id_type(largest: int) -> tf.DType:
    """The type of ids: of 32 bits on a CPU, where they fit; a GPU has kernels for 64.

    TensorFlow reshapes, slices and joins int32 in the host's memory alone.
    """
    return tf.int64 if has_gpu_forms() or largest > np.iinfo(np.int32).max else tf.int32
