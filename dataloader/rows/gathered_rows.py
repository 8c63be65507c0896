"""Rows of several decoded pieces, gathered into one array for each column."""

from __future__ import annotations

import numpy as np

from ..batches.gather import (
    aligned_arrays,
    gather_lengths,
    gather_lists,
    gather_padded,
    gather_scalars,
)
from ..epoch_plan import Rows
from .decoded_rows import Array, DecodedRows, ListColumn, ScalarColumn

Values = Array | tuple[Array, Array]
"""A column of a batch: scalars, padded lists, or the lists' values and offsets."""

Sources = list[tuple[DecodedRows, Rows, Rows]]
"""Decoded pieces, the rows wanted of each, and their places in the result."""


class GatheredRows:
    """Rows of several decoded pieces, numbered as if the pieces were joined.

    Args:
        pieces: as :meth:`~.sequence_reader.SequenceReader.read` gives them.
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
