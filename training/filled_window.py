"""The batches of a window, filled while its rows are decoded."""

from __future__ import annotations

import numpy as np

from .columns import Array, DecodedRows, ListColumn
from .epoch_plan import Rows
from .gather import aligned_arrays, gather_padded, gather_scalars
from .memory_blocks import MemoryBlocks


class FilledWindow:
    """Arrays for all batches of a window, to which every row is brought once.

    A row goes from where it was decoded, while that is in the processor's caches, to its place in
    its batch. Lists must come padded: where they stay ragged, a row's place depends on the lengths
    of others, and :class:`~.row_reader.GatheredRows` looks rows up batch by batch.

    Args:
        batches: the rows of each batch, all of one length, numbered in the order of decoding.
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
        self._places = np.empty(self._batches * self._batch_rows, np.int64)
        slots = np.arange(self._batch_rows)
        for index, rows in enumerate(batches):
            self._places[rows] = index * self._stride + slots
        self._seen = 0
        places = self._batches * self._stride
        shapes = []
        for name, like in layout.columns.items():
            shape = (places, widths[name]) if isinstance(like, ListColumn) else (places,)
            shapes.append((shape, np.dtype(np.int32) if name in compact else like.values.dtype))
        self._arrays = dict(zip(layout.columns, aligned_arrays(shapes, blocks), strict=True))

    def add(self, decoded: DecodedRows, start: int, stop: int) -> None:
        """Bring rows ``start`` to ``stop`` of what was decoded to their batches."""
        places = self._places[self._seen : self._seen + stop - start]
        self._seen += len(places)
        rows = np.arange(start, stop)
        for name, result in self._arrays.items():
            column = decoded.columns[name]
            if isinstance(column, ListColumn):
                gather_padded(column.values, column.offsets, rows, places, result)
            else:
                gather_scalars(column.values, rows, places, result)

    def batch(self, index: int) -> dict[str, Array]:
        """Return the columns of a batch, of which no row is missing any more."""
        start = index * self._stride
        stop = start + self._batch_rows
        return {name: array[start:stop] for name, array in self._arrays.items()}
