"""Reads an epoch's sequence of rows once, from front to back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .columns import Array, DecodedRows, ListColumn, ScalarColumn
from .epoch_plan import EpochPlan, Rows
from .gather import aligned_arrays, gather_lengths, gather_lists, gather_padded, gather_scalars

Values = Array | tuple[Array, Array]
"""A column of a batch: scalars, padded lists, or the lists' values and offsets."""

Sources = list[tuple[DecodedRows, Rows, Rows]]
"""Decoded pieces, the rows wanted of each, and their places in the result."""


class SequenceReader:
    """Hands out ranges of the sequence of ``plan``, ascending, opening each part once.

    Args:
        source: the parts: a :class:`~.row_source.RowSource`, or frames on a GPU.
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


class GatheredRows:
    """Rows of several decoded pieces, numbered as if the pieces were joined.

    Args:
        pieces: as :meth:`SequenceReader.read` gives them.
        layout: the columns without rows: which they are, lists or scalars, of which dtype.
        widths: columns of lists that become [rows, width] arrays, padded with zeros on the left.
        compact: columns of integers that become int32.
    """

    def __init__(
        self,
        pieces: list[tuple[DecodedRows, int, int]],
        layout: DecodedRows,
        widths: dict[str, int],
        compact: frozenset[str] = frozenset(),
    ) -> None:
        """Number the rows."""
        self._compact = compact
        self._pieces = pieces
        self._layout = layout
        self._widths = widths
        lengths = [stop - start for _, start, stop in pieces]
        self._starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    def take(self, rows: Rows) -> dict[str, Values]:
        """Gather ``rows`` of every column; lists become values and offsets, or padded arrays."""
        sources = self._split(rows)
        starts = {
            name: self._list_starts(name, sources, len(rows))
            for name, like in self._layout.columns.items()
            if isinstance(like, ListColumn) and name not in self._widths
        }
        shapes = []
        for name, like in self._layout.columns.items():
            if name in starts:
                shape: tuple[int, ...] = (int(starts[name][-1]),)
            else:
                shape = (len(rows), self._widths[name]) if name in self._widths else (len(rows),)
            kind = np.dtype(np.int32) if name in self._compact else like.values.dtype
            shapes.append((shape, kind))
        results = aligned_arrays(shapes)
        taken: dict[str, Values] = {}
        for name, result in zip(self._layout.columns, results, strict=True):
            self._fill(name, sources, starts.get(name), result)
            taken[name] = (result, starts[name]) if name in starts else result
        return taken

    def _split(self, rows: Rows) -> Sources:
        """Say, piece by piece, which of its rows go to which places of the result."""
        places = np.argsort(rows)  # in stored order, which is kinder to the processor's caches
        bounds = np.searchsorted(rows[places], self._starts)
        split = []
        for index, (decoded, start, _) in enumerate(self._pieces):
            mine = places[bounds[index] : bounds[index + 1]]
            if len(mine):
                split.append((decoded, rows[mine] - (self._starts[index] - start), mine))
        return split

    def _list_starts(self, name: str, sources: Sources, count: int) -> Array:
        starts = np.zeros(count + 1, np.int64)
        for decoded, rows, places in sources:
            column = decoded.columns[name]
            assert isinstance(column, ListColumn)
            gather_lengths(column.offsets, rows, places, starts)
        np.cumsum(starts, out=starts)
        return starts

    def _fill(self, name: str, sources: Sources, starts: Array | None, result: Array) -> None:
        for decoded, rows, places in sources:
            column = decoded.columns[name]
            if isinstance(column, ScalarColumn):
                gather_scalars(column.values, rows, places, result)
            elif starts is None:
                gather_padded(column.values, column.offsets, rows, places, result)
            else:
                gather_lists(column.values, column.offsets, rows, places, starts, result)
