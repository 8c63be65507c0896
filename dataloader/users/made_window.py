"""The batches of a window, each made of users' histories when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..epoch_plan import Rows
from .user_block import Array

LEAST_ROWS = 64
"""Rows for which another thread is worth its while."""


class Piece(Protocol):
    """What some rows of a batch are made of."""

    @property
    def rows(self) -> Array:
        """Whose they are."""
        ...

    def take(self, chosen: Array) -> Any:
        """Choose some of them."""
        ...


class Batch(Protocol):
    """The arrays of a batch."""

    @property
    def columns(self) -> Any:
        """What becomes of it."""
        ...

    def write(self, piece: Any, places: Array) -> None:
        """Write some rows to their places."""
        ...


class MadeWindow:
    """The rows of a window, and which of them are in which batch.

    Args:
        pieces: what its rows are made of, in the order of the epoch.
        batches: the rows of each batch, numbered as if the pieces were joined.
        begin_batch: gives an empty batch of so many rows.
        threads: make a batch side by side.
        most: so many of them at a time.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        batches: list[Rows],
        begin_batch: Callable[[int], Batch],
        threads: ThreadPoolExecutor,
        most: int,
    ) -> None:
        """Number the rows; none is made yet."""
        self._pieces = pieces
        lengths = [len(piece.rows) for piece in pieces]
        self._starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._batches = batches
        self._begin_batch = begin_batch
        self._threads = threads
        self._most = most

    def batch(self, index: int) -> Any:
        """Make a batch."""
        numbers = self._batches[index]
        made = self._begin_batch(len(numbers))
        work: list[Callable[[], None]] = []
        shares = min(self._most, max(1, len(numbers) // LEAST_ROWS))
        for share in range(shares):
            low, high = (len(numbers) * place // shares for place in (share, share + 1))
            work += self._share(made, numbers, low, high)
        if len(work) == 1:
            work[0]()
        else:
            for future in [self._threads.submit(task) for task in work]:
                future.result()
        return made.columns

    def _share(self, made: Batch, numbers: Rows, low: int, high: int) -> list[Callable[[], None]]:
        """What makes the rows ``low`` to ``high``: of each piece those that it has."""
        piece_of = np.searchsorted(self._starts, numbers[low:high], side="right") - 1
        work: list[Callable[[], None]] = []
        for piece in np.unique(piece_of):
            mine = np.flatnonzero(piece_of == piece)
            taken = self._pieces[piece].take(numbers[low + mine] - self._starts[piece])
            work.append(_Task(made, taken, low + mine))
        return work


@dataclass(frozen=True)
class _Task:
    made: Batch
    piece: Any
    places: Array

    def __call__(self) -> None:
        self.made.write(self.piece, self.places)
