"""The batches of a window, filled while its rows are decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..epoch_plan import Rows
from ..rows.decoded_rows import Array, Column, DecodedRows, ListColumn
from .gather import aligned_arrays, gather_padded, gather_scalars
from .memory_blocks import MemoryBlocks

BLOCK_ROWS = 1024
"""Rows that are brought to their places together, in the order of the places: few enough to be
read from a processor's cache, as many as fill stretches of the batches."""


class FilledWindow:
    """Arrays for all batches of a window, to which each of their rows is brought once.

    A row goes from where it was decoded, while that is in the processor's caches, to its place in
    its batch. Lists must come padded: where they stay ragged, a row's place depends on the lengths
    of others, and ``GatheredRows`` looks rows up batch by batch.

    Args:
        batches: the rows of each batch, all of one length, numbered in the order of decoding. Of
            the rows that are decoded, some may be in none of them.
        layout: the columns without rows.
        widths: the width of every list column.
        compact: columns of integers that become int32.
        blocks: memory to use again.
    """

    def __init__(
        self,
        batches: list[Rows],
        layout: DecodedRows,
        widths: dict[str, int],
        compact: frozenset[str] = frozenset(),
        blocks: MemoryBlocks | None = None,
    ) -> None:
        """Say to which place each row goes."""
        self._batches = len(batches)
        self._batch_rows = len(batches[0])
        # Room to begin every batch of a usual size at a boundary of TensorFlow's.
        room = -self._batch_rows % 64 if self._batch_rows > 64 else 0
        self._stride = self._batch_rows + room
        rows = np.concatenate(batches)
        places = np.arange(len(rows)) + room * np.repeat(np.arange(self._batches), self._batch_rows)
        last = int(rows.max(initial=0)) // BLOCK_ROWS
        block = (rows // BLOCK_ROWS).astype(np.min_scalar_type(last))
        order = np.argsort(block, kind="stable")  # by block, and within it by place
        self._rows, self._places = rows[order], places[order]
        # Where each block begins among them: a row that is read may be another rank's.
        self._starts = np.searchsorted(block[order], np.arange(last + 2))
        self._seen = 0
        self._missing = len(rows)
        height = self._batches * self._stride
        shapes: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        for name, like in layout.columns.items():
            shape = (height, widths[name]) if isinstance(like, ListColumn) else (height,)
            shapes.append((shape, np.dtype(np.int32) if name in compact else like.values.dtype))
        self._arrays = dict(zip(layout.columns, aligned_arrays(shapes, blocks), strict=True))

    def expect(self, start: int, stop: int) -> Callable[[dict[str, Column]], None]:
        """Number the rows ``start`` to ``stop`` of the next piece.

        Returns:
            What brings any columns of that piece to their batches.
        """
        seen, self._seen = self._seen, self._seen + stop - start
        last = len(self._starts) - 1
        first_block, next_block = seen // BLOCK_ROWS, -(-self._seen // BLOCK_ROWS)
        blocks = slice(self._starts[min(first_block, last)], self._starts[min(next_block, last)])
        rows, places = self._rows[blocks], self._places[blocks]
        mine = (seen <= rows) & (rows < self._seen)  # the first and the last block's may be others'
        rows, places = rows[mine] + (start - seen), places[mine]
        self._missing -= len(rows)

        def bring(columns: dict[str, Column]) -> None:
            for name, column in columns.items():
                result = self._arrays[name]
                if isinstance(column, ListColumn):
                    gather_padded(column.values, column.offsets, rows, places, result)
                else:
                    gather_scalars(column.values, rows, places, result)

        return bring

    def batch(self, index: int) -> dict[str, Array]:
        """Return the columns of a batch, of which no row is missing any more.

        Raises:
            RuntimeError: where pieces were not expected: memory would be fed as it is.
        """
        if self._missing:
            raise RuntimeError(f"{self._missing} rows of a window were never brought to it")
        start = index * self._stride
        stop = start + self._batch_rows
        return {name: array[start:stop] for name, array in self._arrays.items()}
