"""What the columns of a batch are made of: which features, of which channel, of which type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq
import tensorflow as tf
from merlin.schema import Schema

from ..schemas.channels import (
    HISTORY_TIME_INTERVALS,
    LABEL,
    NEGATIVE_HISTORY,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    UNITS_OF_INTERVALS,
    USER_FEATURES,
)
from ..schemas.dataset import DatasetDirectory
from ..schemas.item_table import ItemTable
from ..schemas.users_files import COUNT, ID
from .batch_form import largest_ids
from .data_error import READ_ERRORS, DataError
from .draws import Items
from .item_check import check_items

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
    """The user features that are asked for."""
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
    features: tuple[tf.Tensor, ...]
    """[items + 1] By item id, the ids of each feature but the item itself; 0 has 0."""
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
        (width,) = spec.feature_spec[channels[POSITIVE_HISTORY][0]].dimensions or (0,)
        path, names = dataset.path / layout.item_table, [ID, COUNT, *layout.item_features]
        try:
            table = pq.read_table(path, columns=list(dict.fromkeys(names)))
        except READ_ERRORS as error:
            raise DataError(f"{path} cannot be read as parquet: {error}") from error
        check_items(path, table, layout.item_features, largest, layout.negatives)
        items = ItemTable(path)
        features = zip(layout.item_features, largest[1:], strict=True)
        return cls(
            label if label in asked else None,
            of_label,
            channels[USER_FEATURES][0],
            tuple(name for name in channels[USER_FEATURES] if name in asked),
            {
                channel: {k: n for k, n in enumerate(channels.get(channel, ())) if n in asked}
                for channel in ITEM_CHANNELS
            },
            intervals[0] if intervals else None,
            UNITS_OF_INTERVALS[layout.time_unit],
            width,
            width if negatives_read is None else min(width, negatives_read),
            layout.samples_per_position,
            Items(items.population(layout.negatives), id_type(largest[0])),
            tuple(tf.constant(items.feature(name), id_type(last)) for name, last in features),
            types,
            id_type(0),
        )

    def asks_for(self, channel: str) -> bool:
        """Whether any column of a channel is asked for."""
        return bool(self.channels[channel])

    def features_of(self, channel: str, items: tf.Tensor) -> dict[str, tf.Tensor]:
        """The columns of a channel, of items of any shape."""
        return {
            name: tf.cast(tf.gather(self.features[place - 1], items) if place else items, kind)
            for place, name in self.channels[channel].items()
            for kind in [self.types[name]]
        }

    def features_of_users(
        self, features: Mapping[str, tf.Tensor], rows: tf.Tensor, counts: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The columns of some users; 0 of those that do not count."""
        found = {name: tf.gather(features[name], rows) for name in self.users}
        return {
            name: tf.cast(tf.where(counts, ids, tf.zeros_like(ids)), self.types[name])
            for name, ids in found.items()
        }


def id_type(largest: int) -> tf.DType:
    """The type of ids: of 32 bits on a CPU, where they fit; a GPU has kernels for 64.

    TensorFlow reshapes, slices and joins int32 in the host's memory alone.
    """
    on_gpu = bool(tf.config.list_logical_devices("GPU"))
    return tf.int64 if on_gpu or largest > np.iinfo(np.int32).max else tf.int32
