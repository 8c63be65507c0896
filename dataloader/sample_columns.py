"""The columns of a batch of samples, and the features of items as TensorFlow ops.

A feature is known at a sample's own time, which is compared as :mod:`.encodings` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
from merlin.schema import Schema

from ..foundation.gpu_forms import has_gpu_forms
from ..foundation.hashing import CROSS_SALT
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
from ..schemas.dataset_files import TIME, VALUE
from ..schemas.feature_spec import Feature
from ..schemas.item_table import COUNT, ID, ItemTable
from ..schemas.users_layout import CrossOf
from .draws import Items, mix
from .encodings import ComparedTimes, Days, InTime, SeenBefore, TimeIndices, read_events, read_rows
from .row_check import last_ids, readable
from .user_check import check_items

Array = npt.NDArray[Any]
CHANGED = "changed"
"""The order of samples' times among the times of changes."""


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


def cross_ids(cross: CrossOf, ids: Sequence[tf.Tensor], dtype: tf.DType) -> tf.Tensor:
    """Hash ids to 1..buckets; 0 where one of them is 0."""
    hashed, known = tf.constant(CROSS_SALT, tf.uint64), tf.constant(True)
    for of_feature in ids:
        hashed = mix(tf.bitwise.bitwise_xor(hashed, tf.cast(of_feature, tf.uint64)))
        known &= of_feature > 0
    bucket = tf.cast(hashed % tf.constant(cross.buckets, tf.uint64), dtype) + 1
    return tf.where(known, bucket, tf.zeros_like(bucket))


def read_changes(files: Mapping[str, Path], last: int) -> tuple[ComparedTimes, dict[str, Any]]:
    """Read the values of items in time: by column its rows, and the value of each."""
    tables = {name: read_rows(path, [ID, TIME, VALUE], last) for name, path in files.items()}
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
