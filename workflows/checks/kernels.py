"""The loops over rows and elements, compiled by numba."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from ...foundation.hashing import GOLDEN, mix

Array = npt.NDArray[Any]


@numba.njit(cache=True, nogil=True)
def hash_lists(values: Array, offsets: Array) -> tuple[Array, Array]:
    """A hash of each list, and how many elements it has; padding (0) is not counted."""
    hashes = np.empty(len(offsets) - 1, np.uint64)
    lengths = np.empty(len(offsets) - 1, np.int64)
    for row in range(len(hashes)):
        found, length = np.uint64(0), 0
        for place in range(offsets[row], offsets[row + 1]):
            if values[place] != 0:
                found = found * GOLDEN + np.uint64(values[place])
                length += 1
        hashes[row], lengths[row] = mix(found), length
    return hashes, lengths


@numba.njit(cache=True, nogil=True)
def add_to_hashes(hashes: Array, values: Array) -> None:
    """Make a column part of the hashes of its rows."""
    for row in range(len(hashes)):
        hashes[row] = mix(hashes[row] * GOLDEN + np.uint64(values[row]))


@numba.njit(cache=True, nogil=True)
def count_ids(ids: Array, labels: Array, mask: int, counts: Array) -> None:
    """Count rows by id (its last bits) and label."""
    for row in range(len(ids)):
        counts[ids[row] & mask, labels[row]] += 1
