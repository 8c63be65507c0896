"""The batches of a window, each made of users' histories when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...foundation.cores import count_cores
from ...schemas.channels import NEGATIVE_HISTORY, POSITIVE_HISTORY, TARGET_ITEM_FEATURES
from ..batches.gather import aligned_arrays
from ..batches.memory_blocks import MemoryBlocks
from ..epoch_plan import Rows
from . import kernels
from .recipe import Recipe
from .stretches import Stretches
from .user_block import Array, UserBlock

LEAST_ROWS = 256
"""Rows for which another thread is worth its while."""


@dataclass(frozen=True)
class Samples:
    """Some samples of one block of users."""

    block: UserBlock
    rows: Array
    """Whose they are."""
    positions: Array
    labels: Array

    def take(self, chosen: Any) -> Samples:
        """Choose some of them."""
        parts = (self.rows, self.positions, self.labels)
        return Samples(self.block, *(part[chosen] for part in parts))


class MadeWindow:
    """The samples of a window, and which of them are in which batch.

    Args:
        pieces: parts of the epoch's sequence, each with its own range of samples.
        batches: the samples of each batch, numbered as if the pieces were joined.
        recipe: how columns are made.
        seed: of this epoch's draws.
        threads: make a batch side by side.
        blocks: memory to use again.
    """

    def __init__(
        self,
        pieces: list[tuple[Stretches, int, int]],
        batches: list[Rows],
        recipe: Recipe,
        seed: int,
        threads: ThreadPoolExecutor,
        blocks: MemoryBlocks,
    ) -> None:
        """Find out which samples there are; none is made yet."""
        self._pieces = [
            Samples(stretches.block, *stretches.samples(first, stop))
            for stretches, first, stop in pieces
        ]
        lengths = [stop - first for _, first, stop in pieces]
        self._starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._batches = batches
        self._recipe = recipe
        self._seed = seed
        self._threads = threads
        self._blocks = blocks

    def batch(self, index: int) -> dict[str, Array]:
        """Make the columns of a batch."""
        numbers = self._batches[index]
        made = MadeBatch(len(numbers), self._recipe, self._seed, self._blocks)
        work: list[Callable[[], None]] = []
        shares = min(count_cores(), max(1, len(numbers) // LEAST_ROWS))
        for share in range(shares):
            low, high = (len(numbers) * place // shares for place in (share, share + 1))
            work += self._share(made, numbers, low, high)
        if len(work) == 1:
            work[0]()
        else:
            for future in [self._threads.submit(task) for task in work]:
                future.result()
        return made.columns

    def _share(
        self, made: MadeBatch, numbers: Rows, low: int, high: int
    ) -> list[Callable[[], None]]:
        """What makes the rows ``low`` to ``high``: of each piece those that it has."""
        piece_of = np.searchsorted(self._starts, numbers[low:high], side="right") - 1
        work: list[Callable[[], None]] = []
        for piece in np.unique(piece_of):
            mine = np.flatnonzero(piece_of == piece)
            samples = self._pieces[piece].take(numbers[low + mine] - self._starts[piece])
            work.append(_Task(made, samples, low + mine))
        return work


@dataclass(frozen=True)
class _Task:
    made: MadeBatch
    samples: Samples
    places: Array

    def __call__(self) -> None:
        self.made.write(self.samples, self.places)


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
        keys = kernels.keys_of(np.uint64(self._seed), user, positions, samples.labels)
        if TARGET_ITEM_FEATURES in items:
            kernels.write_targets(
                block.items, starts, positions, samples.labels, keys, *draws, places,
                items[TARGET_ITEM_FEATURES],
            )  # fmt: skip
        if POSITIVE_HISTORY in items:
            kernels.write_windows(block.items, starts, positions, places, items[POSITIVE_HISTORY])
        if NEGATIVE_HISTORY in items:
            kernels.write_negatives(positions, keys, *draws, places, items[NEGATIVE_HISTORY])
