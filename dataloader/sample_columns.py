"""What the columns of a batch are made of: which features, of which channel, of which type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import tensorflow as tf
from merlin.schema import Schema

from ..foundation.gpu_forms import has_gpu_forms
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
from ..schemas.item_table import COUNT, ID, ItemTable
from ..schemas.specs.feature_spec import Feature
from ..schemas.users_layout import CrossOf
from .batch_form import largest_ids
from .data_error import READ_ERRORS, DataError
from .draws import Items
from .item_check import check_items
from .item_features import (
    CHANGED,
    COUNTED,
    CountedBefore,
    ItemFeature,
    Moments,
    Ranks,
    cross_ids,
    read_changes,
    read_events,
)

ITEM_CHANNELS = (TARGET_ITEM_FEATURES, POSITIVE_HISTORY, NEGATIVE_HISTORY)


@dataclass(frozen=True)
class SampleColumns:
    """The columns that are asked for, and the table of items in memory."""

    label: str | None
    """The column of labels, if it is asked for."""
    label_type: tf.DType
    user: str
    """The feature that tells users apart."""
    users: tuple[str, ...]
    """The user features, contexts and numbers beside them that are asked for."""
    per_interaction: frozenset[str]
    """Those of them that belong to the interaction."""
    channels: Mapping[str, Mapping[int, str]]
    """By channel of items, the columns that are asked for, by their feature's place: the item has
    0."""
    intervals: str | None
    """The column of time intervals, if it is asked for."""
    seconds: float
    """The unit of time intervals."""
    width: int
    """Interactions that a sample sees at most, the newest."""
    negatives_read: int
    """So many of the newest places of a negative history are drawn; the others hold 0."""
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
    encodings: Mapping[str, CountedBefore]
    """Numbers that count what was there before, that are asked for."""
    crosses: Mapping[str, CrossOf]
    """Ids that are hashed of columns of users and targets, that are asked for."""
    moments: Mapping[str, Moments]
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

        Args:
            dataset: An opened directory of users.
            schema: The columns that are asked for.
            negatives_read: So many of the newest places of a negative history does the model read;
                None for all.

        Raises:
            MerlinSimError: Naming the file, row and column of the item table that cannot be used.
        """
        layout, channels, spec = dataset.users, dataset.channels, dataset.spec
        assert layout is not None
        asked = set(schema.column_names)
        largest = [
            int(spec.feature_spec[name].cardinality or 0) for name in channels[TARGET_ITEM_FEATURES]
        ]
        last_ids = largest_ids(schema)
        types = {name: id_type(last_ids.get(name, 2**31)) for name in asked}
        label = channels[LABEL][0]
        of_label = tf.as_dtype(schema[label].dtype.to_numpy) if label in asked else tf.float32
        intervals = [name for name in channels.get(HISTORY_TIME_INTERVALS, ()) if name in asked]
        numbers = channels.get(USER_NUMERICAL, ())
        types |= dict.fromkeys(numbers, tf.float32)
        of_users = (*channels[USER_FEATURES], *channels.get(CONTEXT_FEATURES, ()), *numbers)
        (width,) = spec.feature_spec[channels[POSITIVE_HISTORY][0]].dimensions or (0,)
        path = dataset.path / layout.item_table
        names = [ID, COUNT, *layout.item_features, *layout.item_columns.values()]
        try:
            table = pq.read_table(path, columns=list(dict.fromkeys(names)))
        except READ_ERRORS as error:
            raise DataError(f"{path} cannot be read as parquet: {error}") from error
        check_items(path, table, layout.item_features, largest, layout.negatives)
        items = ItemTable(path)
        moments: dict[str, Moments] = {}
        changes: dict[str, Any] = {}
        if layout.item_changes:
            files = {name: dataset.path / file for name, file in layout.item_changes.items()}
            moments[CHANGED], changes = read_changes(files, largest[0])
        item_columns = {
            name: ItemFeature(_by_item(items, column, spec.feature_spec[name]), kind, changed)
            for name, column in layout.item_columns.items()
            if name in asked
            for changed in [changes.get(column)]
            for kind in [types[name] if spec.feature_spec[name].cardinality else tf.float32]
        }
        encodings = {n: one for n, one in layout.encodings.items() if n in asked}
        counted: dict[str, CountedBefore] = {}
        if encodings:
            last = dict(zip(channels[TARGET_ITEM_FEATURES], largest, strict=True))
            moments[COUNTED], counted = read_events(encodings, dataset.path, last)
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
            {name: cross for name, cross in layout.crosses.items() if name in asked},
            moments,
            types,
            id_type(0),
        )

    def asks_for(self, channel: str) -> bool:
        """Whether any column of a channel is asked for."""
        return bool(self.channels[channel])

    @property
    def reads_targets(self) -> bool:
        """Whether anything of target items is asked for."""
        more = self.item_columns or self.encodings or self.crosses
        return bool(self.asks_for(TARGET_ITEM_FEATURES) or more)

    def of_histories(self, channel: str, items: tf.Tensor, ranks: Ranks) -> dict[str, tf.Tensor]:
        """The columns of histories.

        Args:
            channel: Which histories.
            items: Of any shape; 0 where there is none.
            ranks: Of the samples' times, of a shape that broadcasts to that of the items.
        """
        return {
            name: tf.cast(self.features[place - 1](items, ranks) if place else items, kind)
            for place, name in self.channels[channel].items()
            for kind in [self.types[name]]
        }

    def of_targets(
        self, items: tf.Tensor, ranks: Ranks, of_user: Callable[[str], tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """The columns of target items.

        Args:
            items: [samples], or [users, candidates]; 0 where there is none.
            ranks: Of the samples' times, of a shape that broadcasts to that of the items.
            of_user: Gives the ids of a feature of users or contexts, of such a shape.
        """
        ids = {
            name: self.features[place - 1](items, ranks) if place else items
            for place, name in enumerate(self.targets)
        }
        asked = self.channels[TARGET_ITEM_FEATURES].values()
        made = {name: tf.cast(ids[name], self.types[name]) for name in asked}
        made |= {name: feature(items, ranks) for name, feature in self.item_columns.items()}
        for name, counted in self.encodings.items():
            made[name] = counted(ids[counted.feature], ranks)
        for name, cross in self.crosses.items():
            crossed = [ids[n] if n in ids else of_user(n) for n in cross.features]
            found = cross_ids(cross, crossed, self.types[name])
            made[name] = tf.where(items > 0, found, tf.zeros_like(found))[..., None]
        return made


def _by_item(items: ItemTable, column: str, feature: Feature) -> Any:
    """What a column of the item table holds, by id."""
    width = feature.dimensions[0] if feature.dimensions else None
    if feature.cardinality:
        return items.lists(column, width or 1)
    return items.numbers(column) if width is None else items.vectors(column, width)


def id_type(largest: int) -> tf.DType:
    """The type of ids: of 32 bits on a CPU, where they fit; a GPU has kernels for 64.

    TensorFlow reshapes, slices and joins int32 in the host's memory alone.
    """
    return tf.int64 if has_gpu_forms() or largest > np.iinfo(np.int32).max else tf.int32
