"""Picks rows out of decoded columns: the only loops of the feed, compiled by numba.

Each function copies, for every ``i``, row ``rows[i]`` of a source to row ``places[i]`` of a
result, so that a batch is gathered from several decoded pieces without joining them first.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@numba.njit(cache=True, nogil=True)
def gather_scalars(values: Array, rows: Array, places: Array, result: Array) -> None:
    """Copy ``values[rows]`` to ``result[places]``; all one-dimensional."""
    for i in range(rows.shape[0]):
        result[places[i]] = values[rows[i]]


@numba.njit(cache=True, nogil=True)
def gather_lengths(offsets: Array, rows: Array, places: Array, result: Array) -> None:
    """Write the lengths of the lists ``rows`` to ``result[places + 1]``."""
    for i in range(rows.shape[0]):
        row = rows[i]
        result[places[i] + 1] = offsets[row + 1] - offsets[row]


@numba.njit(cache=True, nogil=True)
def gather_lists(
    values: Array, offsets: Array, rows: Array, places: Array, starts: Array, result: Array
) -> None:
    """Copy the lists ``rows`` to ``result[starts[place]:starts[place + 1]]``."""
    for i in range(rows.shape[0]):
        start = offsets[rows[i]]
        place = starts[places[i]]
        for j in range(offsets[rows[i] + 1] - start):
            result[place + j] = values[start + j]


@numba.njit(cache=True, nogil=True)
def gather_padded(
    values: Array, offsets: Array, rows: Array, places: Array, result: Array
) -> None:
    """Copy the lists ``rows`` to the right end of ``result[places]``, zeros to their left.

    A list longer than a row of ``result`` keeps its last values, which are the newest.
    """
    width = result.shape[1]
    for i in range(rows.shape[0]):
        stop = offsets[rows[i] + 1]
        length = min(stop - offsets[rows[i]], width)
        place = places[i]
        for j in range(width - length):
            result[place, j] = 0
        for j in range(length):
            result[place, width - length + j] = values[stop - length + j]


def aligned_empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """Make an empty array at a 64-byte boundary, which TensorFlow takes over without a copy."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    buffer = np.empty(size + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    result: Array = buffer[start : start + size].view(kind).reshape(shape)
    return result
