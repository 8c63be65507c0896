"""Counter-based hashes: numbers that depend on a seed and a row, never on who asks or when.

The mixing function is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable
Pseudorandom Number Generators, OOPSLA 2014). What TensorFlow ops draw of the same numbers stands
in ``dataloader/draws.py``.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
SLICE_SALT = np.uint64(0x51CE)
ORDER_SALT = np.uint64(0x02DE2)
TWIN_SALT = np.uint64(0x7713)
CROSS_SALT = 0xC205
UNIT = 1.0 / (1 << 53)
WITHOUT_ID = 1 << 40
"""A user without an id is numbered from here on; no id is so large."""


@numba.njit(cache=True, nogil=True)
def mix(value: Any) -> Any:
    """Scatter 64 bits."""
    value = np.uint64(value + GOLDEN)
    value = np.uint64((value ^ (value >> np.uint64(30))) * MIX_1)
    value = np.uint64((value ^ (value >> np.uint64(27))) * MIX_2)
    return np.uint64(value ^ (value >> np.uint64(31)))


def mix_arrays(value: Any) -> Any:
    """:func:`mix` for arrays."""
    value = value + GOLDEN
    value = (value ^ (value >> np.uint64(30))) * MIX_1
    value = (value ^ (value >> np.uint64(27))) * MIX_2
    return value ^ (value >> np.uint64(31))


def mix_32_arrays(value: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Scatter 32 bits: murmur3's finalizer.

    >>> mix_32_arrays(np.array([1, 2], np.uint32)).tolist()
    [1364076727, 821347078]
    """
    value = (value ^ (value >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    value = (value ^ (value >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return value ^ (value >> np.uint32(16))


@numba.njit(cache=True, nogil=True)
def _mix_all(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    mixed = np.empty(len(numbers), np.uint64)
    for row in range(len(numbers)):
        mixed[row] = mix(numbers[row])
    return mixed


@numba.njit(cache=True, nogil=True)
def _hash_spans(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    hashes = np.empty(len(offsets) - 1, dtype=np.uint64)
    for row in range(len(hashes)):
        value = np.uint64(0)
        word = np.uint64(0)
        for index in range(offsets[row], offsets[row + 1]):
            word = (word << np.uint64(8)) | np.uint64(data[index])
            if (index - offsets[row]) % 8 == 7:
                value = mix(value ^ word)
                word = np.uint64(0)
        hashes[row] = mix(value ^ word) + np.uint64(offsets[row + 1] - offsets[row])
    return hashes


def hash_keys(keys: pa.Array) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of each key of an arrow array of strings or integers, without nulls.

    >>> first, second = hash_keys(pa.array(["A12", "A13"]))
    >>> first == hash_keys(pa.array(["x", "A12"]))[1] != second
    True
    """
    if pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type):
        keys = keys.cast(pa.large_string())
        _, offsets, data = keys.buffers()
        first = keys.offset
        spans = np.frombuffer(offsets, dtype=np.int64)[first : first + len(keys) + 1]
        letters = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        hashed: npt.NDArray[np.uint64] = _hash_spans(letters, spans)
        return hashed
    numbers = keys.to_numpy(zero_copy_only=False).astype(np.int64).astype(np.uint64)
    mixed: npt.NDArray[np.uint64] = _mix_all(numbers)
    return mixed


def hashes_without_id(ids: npt.NDArray[Any], keys: pa.Array) -> npt.NDArray[np.int64]:
    """Return a number from :data:`WITHOUT_ID` on for each key without an id, and 0 for others.

    >>> hashes_without_id(np.array([3, 0]), pa.array(["a", "b"])).tolist()[0]
    0
    """
    hashed = (hash_keys(keys) >> np.uint64(1)).astype(np.int64) | WITHOUT_ID
    return np.where(ids > 0, 0, hashed)


def tell_users_apart(
    ids: npt.NDArray[Any], hashes: npt.NDArray[Any] | None, rows: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """Return a number for each user: the id, or the hash, or one made of the row.

    Many users have no id: all that a workflow was not fitted on.

    >>> tell_users_apart(np.array([7, 0]), None, np.array([0, 1])).tolist()
    [7, 1099511627777]
    """
    return np.where(ids > 0, ids, rows + WITHOUT_ID if hashes is None else hashes)
