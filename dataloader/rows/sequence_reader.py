"""Reads an epoch's sequence of rows once, from front to back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..epoch_plan import EpochPlan


class SequenceReader:
    """Hands out ranges of the sequence of ``plan``, ascending, opening each part once.

    Args:
        source: the parts.
        plan: their order in this epoch.
    """

    def __init__(self, source: Any, plan: EpochPlan) -> None:
        """Begin before the first row."""
        self._source = source
        self._plan = plan
        self._part = -1
        self._pieces: Iterator[Any] = iter(())
        self._piece: Any = None
        self._start = 0  # where self._piece lies in the sequence
        self._stop = 0

    def read(self, start: int, stop: int) -> Iterator[tuple[Any, int, int]]:
        """Give the range [start, stop): pieces, each with its own range of their rows."""
        while start < stop:
            self._advance_to(start)
            end = min(stop, self._stop)
            yield self._piece, start - self._start, end - self._start
            start = end

    def _advance_to(self, position: int) -> None:
        if position < self._start:
            raise ValueError(f"row {position} was passed: at {self._start}")
        while position >= self._stop:
            starts = self._plan.part_starts
            if position >= starts[self._part + 1]:
                self._part = int(np.searchsorted(starts, position, side="right")) - 1
                self._pieces = self._source.read(int(self._plan.part_order[self._part]))
                self._stop = int(starts[self._part])
            self._piece = next(self._pieces)
            self._start, self._stop = self._stop, self._stop + self._piece.rows
