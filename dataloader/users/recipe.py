"""What the columns of a batch are made of: whose they are, in which channel, of which type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from merlin.schema import Schema

from ...schemas.channels import (
    HISTORY_TIME_INTERVALS,
    LABEL,
    NEGATIVE_HISTORY,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    UNITS_OF_INTERVALS,
    USER_FEATURES,
)
from ...schemas.dataset import DatasetDirectory
from ..batch_form import small_ids
from .item_lookup import ItemLookup

ITEM_CHANNELS = (TARGET_ITEM_FEATURES, POSITIVE_HISTORY, NEGATIVE_HISTORY)


@dataclass(frozen=True)
class Recipe:
    """How the columns that are asked for are made of users and items."""

    label: str | None
    """The column of labels, if it is asked for."""
    users: tuple[str, ...]
    """The user features that are asked for."""
    items: dict[str, dict[int, str]]
    """By channel, the columns that are asked for, by their feature's place: the item has 0."""
    intervals: str | None
    """The column of time intervals, if it is asked for."""
    seconds: float
    """The unit of time intervals."""
    kinds: dict[str, np.dtype[Any]]
    """By column, the type of its values."""
    width: int
    """Interactions that a sample sees at most, the newest."""
    lookup: ItemLookup
    """The items' features, and what negatives are drawn from."""
    seed: int
    """Of the fixed draws."""
    of_position: int
    """Samples of a position: its negatives, and after them the positive."""
    fresh_negatives: bool
    """Whether each epoch has draws of its own."""

    @classmethod
    def read(cls, dataset: DatasetDirectory, schema: Schema, fresh_negatives: bool) -> Recipe:
        """Find out what it takes to make the columns of ``schema``, and read the item table."""
        layout, channels, spec = dataset.users, dataset.channels, dataset.spec
        assert layout is not None
        asked = set(schema.column_names)
        items = {
            channel: {k: n for k, n in enumerate(channels.get(channel, ())) if n in asked}
            for channel in ITEM_CHANNELS
        }
        largest = [
            int(spec.feature_spec[name].cardinality or 0) for name in channels[TARGET_ITEM_FEATURES]
        ]
        small = small_ids(schema)
        label = channels[LABEL][0]
        kinds = {name: np.dtype(np.int32 if name in small else np.int64) for name in asked}
        if label in asked:
            kinds[label] = np.dtype(schema[label].dtype.to_numpy)
        intervals = [name for name in channels.get(HISTORY_TIME_INTERVALS, ()) if name in asked]
        kinds |= dict.fromkeys(intervals, np.dtype(np.float32))
        (width,) = spec.feature_spec[channels[POSITIVE_HISTORY][0]].dimensions or (0,)
        return cls(
            label if label in asked else None,
            tuple(name for name in channels[USER_FEATURES] if name in asked),
            items,
            intervals[0] if intervals else None,
            UNITS_OF_INTERVALS[layout.time_unit],
            kinds,
            width,
            ItemLookup.read(dataset.path / layout.item_table, layout, largest),
            layout.seed,
            layout.samples_per_position,
            fresh_negatives,
        )

    @property
    def item_kind(self) -> np.dtype[Any]:
        """The type of an item's id."""
        return np.dtype(np.int32 if len(self.lookup.drawing.cumulative) <= 2**31 else np.int64)
