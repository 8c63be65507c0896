"""Counter-based hashes: numbers that depend on a seed and a row, never on who asks or when.

The mixing function is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable
Pseudorandom Number Generators, OOPSLA 2014). The numba functions work on one element and are
called from kernels; those with ``xp`` do the same for whole arrays of numpy or cupy.
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
UNIT = 1.0 / (1 << 53)


@numba.njit(cache=True, nogil=True)
def mix(value: Any) -> Any:
    """Scatter 64 bits."""
    value = np.uint64(value + GOLDEN)
    value = np.uint64((value ^ (value >> np.uint64(30))) * MIX_1)
    value = np.uint64((value ^ (value >> np.uint64(27))) * MIX_2)
    return np.uint64(value ^ (value >> np.uint64(31)))


@numba.njit(cache=True, nogil=True)
def row_key(seed: Any, user: Any, position: Any, label: Any) -> Any:
    """The number that stands for one row of the dataset."""
    return mix(user_key(seed, user) ^ np.uint64(2 * position + label))


@numba.njit(cache=True, nogil=True)
def sample_key(seed: Any, user: Any, position: Any, label: Any, twin: Any) -> Any:
    """:func:`row_key`, and a number of its own for each further twin of a positive."""
    key = row_key(seed, user, position, label)
    return mix(key ^ (TWIN_SALT + np.uint64(twin))) if twin > 0 else key


@numba.njit(cache=True, nogil=True)
def user_key(seed: Any, user: Any) -> Any:
    """What the numbers of all rows of a user are made of."""
    return mix(mix(np.uint64(seed)) ^ np.uint64(user))


@numba.njit(cache=True, nogil=True)
def draw_below(key: Any, draw: Any, bound: Any) -> Any:
    """The ``draw``-th number in [0, bound) of a row: floor(uniform * bound)."""
    bits = mix(key + np.uint64(draw) * GOLDEN)
    return np.int64(np.float64(bits >> np.uint64(11)) * UNIT * np.float64(bound))


def mix_arrays(value: Any, xp: Any) -> Any:
    """:func:`mix` for arrays of numpy or cupy."""
    value = value + xp.uint64(GOLDEN)
    value = (value ^ (value >> xp.uint64(30))) * xp.uint64(MIX_1)
    value = (value ^ (value >> xp.uint64(27))) * xp.uint64(MIX_2)
    return value ^ (value >> xp.uint64(31))


def row_key_arrays(seed: int, user: Any, position: Any, label: Any, xp: Any) -> Any:
    """:func:`row_key` for arrays of numpy or cupy."""
    key = mix_arrays(xp.asarray([seed & 0xFFFFFFFFFFFFFFFF], dtype=xp.uint64), xp)
    key = mix_arrays(key ^ user.astype(xp.uint64), xp)
    return mix_arrays(key ^ (2 * position + label).astype(xp.uint64), xp)


def sample_key_arrays(seed: int, user: Any, position: Any, label: Any, twin: Any, xp: Any) -> Any:
    """:func:`sample_key` for arrays of numpy or cupy."""
    key = row_key_arrays(seed, user, position, label, xp)
    return xp.where(
        twin > 0, mix_arrays(key ^ (xp.uint64(TWIN_SALT) + twin.astype(xp.uint64)), xp), key
    )


def draw_below_arrays(key: Any, draw: Any, bound: int, xp: Any) -> Any:
    """:func:`draw_below` for arrays of numpy or cupy."""
    bits = mix_arrays(key + draw.astype(xp.uint64) * xp.uint64(GOLDEN), xp)
    return ((bits >> xp.uint64(11)).astype(xp.float64) * UNIT * float(bound)).astype(xp.int64)


@numba.njit(cache=True, nogil=True)
def _hash_spans(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    hashes = np.empty(len(offsets) - 1, dtype=np.uint64)
    for row in range(len(hashes)):
        value = np.uint64(0)
        word = np.uint64(0)
        for place in range(offsets[row], offsets[row + 1]):
            word = (word << np.uint64(8)) | np.uint64(data[place])
            if (place - offsets[row]) % 8 == 7:
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
    mixed: npt.NDArray[np.uint64] = mix_arrays(numbers, np)
    return mixed
