"""Picks rows out of decoded columns: the only loops of the feed, compiled by numba.

Each function copies, for every ``i``, row ``rows[i]`` of a source to row ``places[i]`` of a
result, so that a batch is gathered from several decoded pieces without joining them first.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from .memory_blocks import MemoryBlocks

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
        source = values[offsets[rows[i]] : offsets[rows[i] + 1]]
        target = result[starts[places[i]] : starts[places[i] + 1]]
        for j in range(source.shape[0]):
            target[j] = source[j]


@numba.njit(cache=True, nogil=True)
def gather_padded(values: Array, offsets: Array, rows: Array, places: Array, result: Array) -> None:
    """Copy the lists ``rows`` to the right end of ``result[places]``, zeros to their left.

    A list longer than a row of ``result`` keeps its last values, which are the newest.
    """
    width = result.shape[1]
    for i in range(rows.shape[0]):
        stop = offsets[rows[i] + 1]
        length = min(stop - offsets[rows[i]], width)
        result[places[i], : width - length] = 0
        target = result[places[i], width - length :]
        source = values[stop - length : stop]
        for j in range(length):
            target[j] = source[j]


def aligned_arrays(
    shapes: list[tuple[tuple[int, ...], np.dtype[Any]]], blocks: MemoryBlocks | None = None
) -> list[Array]:
    """Make empty arrays in one block of memory, each at a 64-byte boundary.

    TensorFlow takes such arrays over without a copy, and one large block comes in huge pages,
    which are several times cheaper to touch first than as many small ones. With ``blocks`` it may
    be one that was used before.
    """
    sizes = [-(-math.prod(shape) * kind.itemsize // 64) * 64 for shape, kind in shapes]
    size = sum(sizes) + 64
    block = np.empty(size, np.uint8) if blocks is None else blocks.take(size)
    start = -block.ctypes.data % 64
    arrays = []
    for (shape, kind), size in zip(shapes, sizes, strict=True):
        used = math.prod(shape) * kind.itemsize
        arrays.append(block[start : start + used].view(kind).reshape(shape))
        start += size
    return arrays
