"""Batches of rows, one for each sample, as a dataset of samples has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...schemas.channels import NEGATIVE_HISTORY, POSITIVE_HISTORY, TARGET_ITEM_FEATURES
from ..batches.gather import aligned_arrays
from ..batches.memory_blocks import MemoryBlocks
from . import kernels
from .recipe import Recipe
from .stretches import Stretches
from .user_block import Array, UserBlock


@dataclass(frozen=True)
class Samples:
    """Some samples of one block of users."""

    block: UserBlock
    rows: Array
    """Whose they are."""
    positions: Array
    labels: Array
    twins: Array
    """Which of its position's negatives each is; 0 for a positive."""

    @classmethod
    def of(cls, stretches: Stretches, first: int, stop: int) -> Samples:
        """Those at some places of a part's order."""
        return cls(stretches.block, *stretches.samples(first, stop))

    @property
    def seen(self) -> Array:
        """How many interactions of its user each sees."""
        return self.block.seen(self.rows, self.positions)

    def take(self, chosen: Array) -> Samples:
        """Choose some of them."""
        parts = (self.rows, self.positions, self.labels, self.twins)
        return Samples(self.block, *(part[chosen] for part in parts))


class MadeBatch:
    """The arrays of a batch, whose rows are written in any order."""

    def __init__(self, rows: int, recipe: Recipe, seed: int, blocks: MemoryBlocks) -> None:
        """Get memory; a feature that is asked for without its item needs the item's too."""
        self._recipe, self._seed = recipe, seed
        names = [*recipe.users, *([recipe.label] if recipe.label else [])]
        shapes: dict[Any, tuple[tuple[int, ...], np.dtype[Any]]] = {
            name: ((rows,), recipe.kinds[name]) for name in names
        }
        for channel, columns in recipe.items.items():
            shape = (rows,) if channel == TARGET_ITEM_FEATURES else (rows, recipe.width)
            if columns and 0 not in columns:
                shapes[channel, 0] = (shape, recipe.item_kind)
            for name in columns.values():
                shapes[name] = (shape, recipe.kinds[name])
        if recipe.intervals:
            shapes[recipe.intervals] = ((rows, recipe.width), recipe.kinds[recipe.intervals])
        arrays = dict(zip(shapes, aligned_arrays(list(shapes.values()), blocks), strict=True))
        self._items = {
            channel: arrays[columns.get(0, (channel, 0))]
            for channel, columns in recipe.items.items()
            if columns
        }
        self.columns: dict[str, Array] = {n: a for n, a in arrays.items() if isinstance(n, str)}
        """By column, its values; whole when every row was written."""

    def write(self, samples: Samples, places: Array) -> None:
        """Write some samples to their places."""
        recipe, block = self._recipe, samples.block
        for name in recipe.users:
            self.columns[name][places] = block.users[name][samples.rows]
        if recipe.label:
            self.columns[recipe.label][places] = samples.labels
        self._write_items(samples, places)
        if recipe.intervals:
            starts = block.starts[samples.rows]
            intervals = self.columns[recipe.intervals]
            kernels.write_intervals(
                block.times, starts, samples.positions, samples.seen, recipe.seconds, places,
                intervals,
            )  # fmt: skip
        for channel, columns in recipe.items.items():
            look_up = kernels.look_up_rows
            if channel == TARGET_ITEM_FEATURES:
                look_up = kernels.look_up
            for place, name in columns.items():
                if place:
                    table = recipe.lookup.features[place - 1]
                    look_up(table, self._items[channel], places, self.columns[name])

    def _write_items(self, samples: Samples, places: Array) -> None:
        block, positions, items = samples.block, samples.positions, self._items
        starts = block.starts[samples.rows]
        drawing = self._recipe.lookup.drawing
        draws = (drawing.cumulative, drawing.guide, drawing.shift)
        user = next(iter(block.users.values()))[samples.rows]
        labels, twins = samples.labels, samples.twins
        keys = kernels.keys_of(np.uint64(self._seed), user, positions, labels, twins)
        if TARGET_ITEM_FEATURES in items:
            kernels.write_targets(
                block.items, starts, positions, labels, keys, *draws, *block.own_of(samples.rows),
                places, items[TARGET_ITEM_FEATURES],
            )  # fmt: skip
        if POSITIVE_HISTORY in items:
            history = items[POSITIVE_HISTORY]
            kernels.write_windows(block.items, starts, samples.seen, places, history)
        if NEGATIVE_HISTORY in items:
            kernels.write_negatives(samples.seen, keys, *draws, places, items[NEGATIVE_HISTORY])
