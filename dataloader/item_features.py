"""Features of items as TensorFlow ops: what is known of an item, at a sample's own time.

A time is compared as its rank among the times of a file, a whole number for each sample that the
host works out once. Of sorted ``id * span + rank`` one search finds what stands before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf

from ..foundation.hashing import CROSS_SALT
from ..schemas.dataset_files import SECONDS, TAKEN, TIME, VALUE
from ..schemas.item_table import ID
from ..schemas.users_layout import COUNT, CrossOf, EncodingOf
from .data_error import READ_ERRORS, DataError
from .draws import mix

Array = npt.NDArray[Any]
CHANGED, COUNTED = "changed", "counted"
"""Ranks of samples' times: among the times of changes, and among those of counted interactions."""
Ranks = Mapping[str, tf.Tensor]


class InTime:
    """Rows of ids, in the order of time.

    Args:
        ids: [rows] From 1, ascending.
        ranks: [rows] Of their times, of one id ascending.
        times: How many times there are.
        last: The last id.
    """

    def __init__(self, ids: Array, ranks: Array, times: int, last: int) -> None:
        """Sort nothing: rows come sorted."""
        self._span = times + 1
        self._keys = tf.constant(ids * self._span + ranks)
        starts = np.searchsorted(ids, np.arange(last + 2))
        self._starts = tf.constant(starts, tf.int64)

    def rows_before(self, ids: tf.Tensor, rank: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Where the rows of ids begin, and where those before a time end; int64."""
        wanted = tf.cast(ids, tf.int64) * self._span + tf.cast(rank, tf.int64)
        found = tf.searchsorted(self._keys, tf.reshape(wanted, [-1]), out_type=tf.int64)
        start = tf.gather(self._starts, ids)
        return start, tf.maximum(start, tf.reshape(found, tf.shape(wanted)))

    def has_rows(self, ids: tf.Tensor) -> tf.Tensor:
        """Whether ids have any row."""
        return tf.gather(self._starts, tf.cast(ids, tf.int64) + 1) > tf.gather(self._starts, ids)


class ItemFeature:
    """Ids, numbers, lists or vectors by item.

    Args:
        table: [items + 1, ...] Those known last; of item 0 zeros.
        dtype: What a batch holds.
        changes: The values in time: rows, and the value of each.
    """

    def __init__(
        self, table: Array, dtype: tf.DType, changes: tuple[InTime, Array] | None = None
    ) -> None:
        """Put the table on the device."""
        self._table = tf.constant(table, dtype)
        self._changes = None
        if changes is not None:
            self._changes = changes[0], tf.constant(changes[1], dtype)

    def __call__(self, items: tf.Tensor, ranks: Ranks) -> tf.Tensor:
        """Look up items of any shape; ranks have that shape, or broadcast to it."""
        found = tf.gather(self._table, items)
        if self._changes is None:
            return found
        in_time, values = self._changes
        start, stop = in_time.rows_before(items, tf.broadcast_to(ranks[CHANGED], tf.shape(items)))
        # Before the first value was known, an item has that.
        known = tf.gather(values, tf.minimum(tf.maximum(start, stop - 1), len(values) - 1))
        changes = in_time.has_rows(items)
        extra = [1] * (len(found.shape) - len(changes.shape))
        changes = tf.reshape(changes, tf.concat([tf.shape(changes), extra], 0))
        return tf.where(changes, known, found)


class CountedBefore:
    """How often a target's feature was shown before a sample, or the share that was taken.

    Args:
        encoding: What is made of the counts.
        in_time: All interactions.
        taken: [interactions] Which of them were taken.
    """

    def __init__(self, encoding: EncodingOf, in_time: InTime, taken: Array) -> None:
        """Work out the numbers of counts on the host, for every device to have the same."""
        self.feature = encoding.feature
        self._encoding, self._in_time = encoding, in_time
        self._taken = tf.constant(np.concatenate([[0], np.cumsum(taken)]), tf.float64)
        most = int(np.diff(in_time._starts.numpy()).max(initial=0))
        self._logarithms = tf.constant(np.log1p(np.arange(most + 1)), tf.float32)

    def __call__(self, ids: tf.Tensor, ranks: Ranks) -> tf.Tensor:
        """Count for target ids of any shape."""
        rank = tf.broadcast_to(ranks[COUNTED], tf.shape(ids))
        start, stop = self._in_time.rows_before(ids, rank)
        if self._encoding.kind == COUNT:
            return tf.gather(self._logarithms, stop - start)
        shown = tf.cast(stop - start, tf.float64)
        taken = tf.gather(self._taken, stop) - tf.gather(self._taken, start)
        prior, smoothing = self._encoding.prior, self._encoding.smoothing
        share = (taken + smoothing * prior) / tf.where(shown > 0, shown + smoothing, 1.0)
        return tf.cast(tf.where(shown > 0, share, prior), tf.float32)


def cross_ids(cross: CrossOf, ids: Sequence[tf.Tensor], dtype: tf.DType) -> tf.Tensor:
    """Hash ids to 1..buckets; 0 where one of them is 0."""
    hashed, known = tf.constant(CROSS_SALT, tf.uint64), tf.constant(True)
    for of_feature in ids:
        hashed = mix(tf.bitwise.bitwise_xor(hashed, tf.cast(of_feature, tf.uint64)))
        known &= of_feature > 0
    bucket = tf.cast(hashed % tf.constant(cross.buckets, tf.uint64), dtype) + 1
    return tf.where(known, bucket, tf.zeros_like(bucket))


@dataclass(frozen=True)
class Moments:
    """Times to compare those of samples with."""

    times: Array
    """All that occur, ascending."""
    side: str
    """``right``: what has the sample's own time stands before it. ``left``: it does not."""

    def ranks(self, times: Array) -> Array:
        """How many of them stand before each of some times."""
        return np.searchsorted(self.times, times, self.side)  # type: ignore[call-overload,no-any-return]


def read_changes(files: Mapping[str, Path], last: int) -> tuple[Moments, dict[str, Any]]:
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
    return Moments(times, "right"), found


def read_events(
    encodings: Mapping[str, EncodingOf], directory: Path, last_ids: Mapping[str, int]
) -> tuple[Moments, dict[str, CountedBefore]]:
    """Read the interactions that encodings count: by number, what counts them.

    Args:
        encodings: By number, what it is made of.
        directory: The dataset's.
        last_ids: By target item feature, its last id.
    """
    features = {encoding.events: encoding.feature for encoding in encodings.values()}
    columns = [ID, SECONDS, TAKEN]
    tables = {n: _read(directory / n, columns, last_ids[f]) for n, f in features.items()}
    times = np.unique(np.concatenate([np.asarray(table[SECONDS]) for table in tables.values()]))
    rows = {}
    for name, table in tables.items():
        ids, at = np.asarray(table[ID]), np.searchsorted(times, np.asarray(table[SECONDS]))
        order = np.lexsort((at, ids))
        in_time = InTime(ids[order], at[order], len(times), last_ids[features[name]])
        rows[name] = in_time, np.asarray(table[TAKEN])[order]
    counted = {name: CountedBefore(one, *rows[one.events]) for name, one in encodings.items()}
    return Moments(times, "left"), counted


def _read(path: Path, names: list[str], last: int) -> pa.Table:
    try:
        table = pq.read_table(path, columns=names)
    except READ_ERRORS as error:
        raise DataError(f"{path} cannot be read as parquet: {error}") from error
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
