"""Batches of users x candidates: a row is a stretch of a user's positions, seen once for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...foundation.batch_names import HISTORY_END
from ...schemas.channels import NEGATIVE_HISTORY, POSITIVE_HISTORY, TARGET_ITEM_FEATURES
from ..batches.gather import aligned_arrays
from ..batches.memory_blocks import MemoryBlocks
from . import kernels
from .drawing import place_seed
from .recipe import Recipe
from .stretches import Stretches
from .user_block import Array, UserBlock

LABEL = "label"
WEIGHT = "weight"


@dataclass(frozen=True)
class Groups:
    """Some stretches of one block of users."""

    block: UserBlock
    rows: Array
    """Whose they are."""
    begins: Array
    """Their first positions."""
    counts: Array
    """How many positions they have."""

    @classmethod
    def of(cls, stretches: Stretches, first: int, stop: int) -> Groups:
        """Those at some places of a part's order."""
        s = slice(first, stop)
        return cls(stretches.block, stretches.rows[s], stretches.begins[s], stretches.counts[s])

    def take(self, chosen: Array) -> Groups:
        """Choose some of them."""
        parts = (self.rows, self.begins, self.counts)
        return Groups(self.block, *(part[chosen] for part in parts))


class GroupedBatch:
    """The arrays of a batch of users x candidates, whose rows are written in any order.

    Args:
        rows: stretches.
        candidates: of each row, as many for each position as it has samples.
        recipe: how columns are made.
        seed: of this epoch's draws.
        blocks: memory to use again.
    """

    def __init__(
        self, rows: int, candidates: int, recipe: Recipe, seed: int, blocks: MemoryBlocks
    ) -> None:
        """Get memory; a feature that is asked for without its item needs the item's too."""
        self._recipe, self._seed = recipe, seed
        windows = candidates // recipe.of_position
        self._length = recipe.width + windows - 1
        shapes: dict[Any, tuple[tuple[int, ...], Any]] = {
            (HISTORY_END,): ((rows, windows), np.dtype(np.int32)),
            (LABEL,): ((rows, candidates), np.dtype(np.float32)),
            (WEIGHT,): ((rows, candidates), np.dtype(np.float32)),
        }
        for name in recipe.users:
            shapes[name] = ((rows,), recipe.kinds[name])
        for channel, columns in recipe.items.items():
            is_target = channel == TARGET_ITEM_FEATURES
            shape = (rows, candidates if is_target else self._length)
            if 0 not in columns and (columns or is_target):
                shapes[channel, 0] = (shape, recipe.item_kind)
            for name in columns.values():
                shapes[name] = (shape, recipe.kinds[name])
        if recipe.intervals:
            kind = recipe.kinds[recipe.intervals]
            shapes[recipe.intervals] = ((rows, windows, self._length), kind)
        made = aligned_arrays(list(shapes.values()), blocks)
        self._arrays = dict(zip(shapes, made, strict=True))
        self._items = {
            channel: self._arrays[columns.get(0, (channel, 0))]
            for channel, columns in recipe.items.items()
            if columns or channel == TARGET_ITEM_FEATURES
        }

    @property
    def columns(self) -> tuple[dict[str, Array], Array, Array]:
        """The inputs, the labels and the weights; whole when every row was written."""
        inputs = {name: array for name, array in self._arrays.items() if isinstance(name, str)}
        inputs[HISTORY_END] = self._arrays[HISTORY_END,]
        return inputs, self._arrays[LABEL,], self._arrays[WEIGHT,]

    def write(self, groups: Groups, places: Array) -> None:
        """Write some stretches to their rows."""
        recipe, block, items = self._recipe, groups.block, self._items
        for name in recipe.users:
            self._arrays[name][places] = block.users[name][groups.rows]
        starts = block.starts[groups.rows]
        user = next(iter(block.users.values()))[groups.rows]
        drawing = recipe.lookup.drawing
        draws = (drawing.cumulative, drawing.guide, drawing.shift)
        same_time = np.empty(0, np.int64) if block.same_time is None else block.same_time
        stretch = (starts, groups.begins, groups.counts, same_time)
        least = block.seen(groups.rows, groups.begins)
        most = block.seen(groups.rows, groups.begins + groups.counts - 1)
        kernels.write_candidates(
            block.items, *stretch, np.uint64(self._seed), user, *draws,
            *block.own_of(groups.rows), recipe.of_position, self._length,
            places, items[TARGET_ITEM_FEATURES],
            self._arrays[HISTORY_END,], self._arrays[LABEL,], self._arrays[WEIGHT,],
        )  # fmt: skip
        if POSITIVE_HISTORY in items:
            history = items[POSITIVE_HISTORY]
            kernels.write_stretches(block.items, starts, least, most, recipe.width, places, history)
        if NEGATIVE_HISTORY in items:
            kernels.write_stretch_negatives(
                np.uint64(place_seed(self._seed)), user, least, most, recipe.width,
                *draws, places, items[NEGATIVE_HISTORY],
            )  # fmt: skip
        if recipe.intervals:
            kernels.write_stretch_intervals(
                block.times, *stretch, recipe.width, recipe.seconds, places,
                self._arrays[recipe.intervals],
            )  # fmt: skip
        for channel, columns in recipe.items.items():
            for place, name in columns.items():
                if place:
                    table = recipe.lookup.features[place - 1]
                    kernels.look_up_rows(table, items[channel], places, self._arrays[name])
