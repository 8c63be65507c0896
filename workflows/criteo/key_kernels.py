"""Keys of 32 bits, scattered, counted and looked up: numba loops.

A key is scattered by a function that has an inverse, so that keys of any kind spread evenly over
parts and over a table's places, and the scattered keys are all that needs to be kept.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

BITS = 32
LOW = 0xFFFFFFFF


@numba.njit(cache=True, nogil=True)
def scatter(key: int) -> Any:
    """Scatter one key: murmur3's finalizer."""
    mixed = np.uint64(key) & np.uint64(LOW)
    mixed ^= mixed >> np.uint64(16)
    mixed = (mixed * np.uint64(0x85EBCA6B)) & np.uint64(LOW)
    mixed ^= mixed >> np.uint64(13)
    mixed = (mixed * np.uint64(0xC2B2AE35)) & np.uint64(LOW)
    return mixed ^ (mixed >> np.uint64(16))


@numba.njit(cache=True, nogil=True)
def gather_up(mixed: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Give the keys that were scattered to these."""
    keys = np.empty(len(mixed), np.uint32)
    for place in range(len(mixed)):
        key = np.uint64(mixed[place])
        key ^= key >> np.uint64(16)
        key = (key * np.uint64(0x7ED1B41D)) & np.uint64(LOW)
        key ^= (key >> np.uint64(13)) ^ (key >> np.uint64(26))
        key = (key * np.uint64(0xA5CB9243)) & np.uint64(LOW)
        keys[place] = key ^ (key >> np.uint64(16))
    return keys


@numba.njit(cache=True, nogil=True)
def scatter_all(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Scatter keys, none of them missing."""
    mixed = np.empty(len(keys), np.uint32)
    for place in range(len(keys)):
        mixed[place] = scatter(keys[place])
    return mixed


@numba.njit(cache=True, nogil=True)
def count_keys(keys: npt.NDArray[np.int64], part_bits: int) -> Any:
    """Count the keys of a piece, dealt out into 2^part_bits parts by their first scattered bits.

    Args:
        keys: [rows]; negative where there is none, which is not counted.
        part_bits: How many bits.

    Returns:
        [different keys] scattered key and count, in the upper and lower half of a number, part by
        part; [parts + 1] where each part begins.
    """
    bits = 4
    while (1 << bits) < 2 * len(keys):
        bits += 1
    table = np.zeros(1 << bits, np.uint64)
    last = (1 << bits) - 1
    begins = np.zeros((1 << part_bits) + 1, np.int64)
    for key in keys:
        if key < 0:
            continue
        mixed = scatter(key)
        place = np.int64(mixed >> np.uint64(BITS - bits)) if bits <= BITS else np.int64(mixed)
        while table[place] != 0 and (table[place] >> np.uint64(BITS)) != mixed:
            place = (place + 1) & last
        if table[place] == 0:
            table[place] = mixed << np.uint64(BITS)
            begins[(mixed >> np.uint64(BITS - part_bits)) + np.uint64(1)] += 1
        table[place] += np.uint64(1)
    begins = np.cumsum(begins)
    found = np.empty(begins[-1], np.uint64)
    ends = begins[:-1].copy()
    for pair in table:
        if pair != 0:
            part = (pair >> np.uint64(BITS)) >> np.uint64(BITS - part_bits)
            found[ends[part]] = pair
            ends[part] += 1
    return found, begins


@numba.njit(cache=True, nogil=True)
def look_up(
    keys: npt.NDArray[np.int64],
    mixed: npt.NDArray[np.uint32],
    ids: npt.NDArray[np.int32],
    begins: npt.NDArray[np.int64],
    begin_bits: int,
) -> npt.NDArray[np.int32]:
    """Look keys up.

    Args:
        keys: [rows]; negative where there is none.
        mixed: [known keys] Scattered, in order.
        ids: [known keys].
        begins: [2^begin_bits + 1] Where the scattered keys with the same first bits begin.
        begin_bits: How many bits.

    Returns:
        [rows] ids; 0 for a key that is missing or unknown.
    """
    found = np.zeros(len(keys), np.int32)
    for row in range(len(keys)):
        if keys[row] < 0:
            continue
        wanted = scatter(keys[row])
        bucket = np.int64(wanted >> np.uint64(BITS - begin_bits))
        low, high = begins[bucket], begins[bucket + 1]
        while low < high:
            middle = (low + high) // 2
            if mixed[middle] < wanted:
                low = middle + 1
            else:
                high = middle
        if low < begins[bucket + 1] and mixed[low] == wanted:
            found[row] = ids[low]
    return found


@numba.njit(cache=True, nogil=True)
def hexadecimal(keys: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    """Write keys as 8 hexadecimal digits each: [8 x keys] bytes."""
    text = np.empty(8 * len(keys), np.uint8)
    for row in range(len(keys)):
        key = np.int64(keys[row])
        for place in range(8):
            digit = (key >> (4 * (7 - place))) & 15
            text[8 * row + place] = digit + (48 if digit < 10 else 87)
    return text
