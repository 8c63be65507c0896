"""Parquet's runs of small integers: a value repeated, or values packed bit by bit.

Levels and the indices into a column's dictionary are written so. The functions are compiled by
numba and let other threads run; none of them reads outside its arrays, whatever the bytes say.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic

Array = npt.NDArray[Any]

POSITION, END, LEFT, VALUE, BIT = range(5)
"""The places of a reader's state: the next run's byte, the byte behind the last run, and of the
run that is being read how many values are left, and the value that it repeats or, from
:data:`PACKED` on, the bit at which its next value lies."""

PACKED = -1
"""As VALUE: the run is packed."""


def start_runs(position: int, end: int) -> Array:
    """Make the state of a reader of the runs in bytes ``position`` to ``end``."""
    return np.array([position, end, 0, 0, 0], np.int64)


@intrinsic
def _eight_bytes(context: Any, data: Any, position: Any) -> Any:
    """Load ``data[position : position + 8]`` as one integer, wherever it begins."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.gep(array.data, [arguments[1]])
        word = context.get_value_type(types.uint64).as_pointer()
        return builder.load(builder.bitcast(pointer, word), align=1)

    return types.uint64(data, types.int64), generate


@numba.njit(cache=True, nogil=True)
def _next_run(data: Array, state: Array, width: int) -> bool:
    """Read the header of the next run; False where there is none."""
    position, end = state[POSITION], state[END]
    header = shift = 0
    while True:
        if position >= end or shift > 28:
            return False
        byte = int(data[position])
        position += 1
        header |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if header & 1:
        size = (header >> 1) * width
        state[VALUE], state[BIT] = PACKED, position * 8
        state[LEFT] = (header >> 1) * 8
        if size > end - position:  # a writer may leave out the last run's unused bytes
            size = end - position
            state[LEFT] = size * 8 // width
    else:
        size = (width + 7) // 8
        if size > end - position:
            return False
        value = 0
        for i in range(size):
            value |= int(data[position + i]) << (8 * i)
        state[VALUE], state[LEFT] = value, header >> 1
    state[POSITION] = position + size
    return bool(state[LEFT] > 0)


@numba.njit(cache=True, nogil=True)
def _unpack_eights(data: Array, byte: int, width: int, dictionary: Array, result: Array) -> int:
    """Look up packed indices from a byte's first bit on, eight at a time while all is well.

    Eight indices take ``width`` bytes, and two of at most 28 bits are in eight bytes wherever they
    begin: four loads, the same distances apart each time.

    Returns:
        How many were looked up: the rest is at the end of the data, or an index lies outside.
    """
    mask, shift = np.uint64((1 << width) - 1), np.uint64(width)
    last = np.uint64(len(dictionary) - 1)
    byte_2, byte_4, byte_6 = (2 * width) >> 3, (4 * width) >> 3, (6 * width) >> 3
    bit_2, bit_4, bit_6 = (2 * width) & 7, (4 * width) & 7, (6 * width) & 7
    done = 0
    while done + 8 <= len(result) and byte + byte_6 + 8 <= len(data):
        word = _eight_bytes(data, byte)
        index_0, index_1 = word & mask, (word >> shift) & mask
        word = _eight_bytes(data, byte + byte_2) >> np.uint64(bit_2)
        index_2, index_3 = word & mask, (word >> shift) & mask
        word = _eight_bytes(data, byte + byte_4) >> np.uint64(bit_4)
        index_4, index_5 = word & mask, (word >> shift) & mask
        word = _eight_bytes(data, byte + byte_6) >> np.uint64(bit_6)
        index_6, index_7 = word & mask, (word >> shift) & mask
        largest = max(max(index_0, index_1), max(index_2, index_3))
        if max(largest, max(max(index_4, index_5), max(index_6, index_7))) > last:
            break
        result[done] = dictionary[index_0]
        result[done + 1] = dictionary[index_1]
        result[done + 2] = dictionary[index_2]
        result[done + 3] = dictionary[index_3]
        result[done + 4] = dictionary[index_4]
        result[done + 5] = dictionary[index_5]
        result[done + 6] = dictionary[index_6]
        result[done + 7] = dictionary[index_7]
        byte += width
        done += 8
    return done


@numba.njit(cache=True, nogil=True)
def _unpack(data: Array, bit: int, width: int, dictionary: Array, result: Array) -> bool:
    """Look up packed indices; False where one lies outside the dictionary."""
    done = 0
    if bit & 7 == 0 and width <= 28:
        done = _unpack_eights(data, bit >> 3, width, dictionary, result)
        bit += done * width
    mask = np.uint64((1 << width) - 1)
    for i in range(done, len(result)):
        byte = bit >> 3
        word = np.uint64(0)
        if byte + 8 <= len(data):
            word = _eight_bytes(data, byte)
        else:
            for j in range(len(data) - byte):
                word |= np.uint64(data[byte + j]) << np.uint64(8 * j)
        index = (word >> np.uint64(bit & 7)) & mask
        if index >= np.uint64(len(dictionary)):
            return False
        result[i] = dictionary[index]
        bit += width
    return True


@numba.njit(cache=True, nogil=True)
def look_up(data: Array, state: Array, width: int, dictionary: Array, result: Array) -> bool:
    """Fill ``result`` with the dictionary's values at the next indices.

    Returns:
        False where the runs end too early or an index lies outside the dictionary.
    """
    done = 0
    while done < len(result):
        if state[LEFT] == 0 and not _next_run(data, state, width):
            return False
        count = min(state[LEFT], len(result) - done)
        if state[VALUE] == PACKED:
            if not _unpack(data, state[BIT], width, dictionary, result[done : done + count]):
                return False
            state[BIT] += count * width
        elif state[VALUE] < len(dictionary):
            result[done : done + count] = dictionary[state[VALUE]]
        else:
            return False
        state[LEFT] -= count
        done += count
    return True


@numba.njit(cache=True, nogil=True)
def is_constant(data: Array, state: Array, width: int, count: int, value: int) -> bool:
    """Tell whether the next ``count`` values are runs of nothing but ``value``."""
    while count > 0:
        if not _next_run(data, state, width) or state[VALUE] != value:
            return False
        count -= state[LEFT]
    return True


@numba.njit(cache=True, nogil=True)
def find_zeros(data: Array, state: Array, count: int, result: Array) -> int:
    """Write where among the next ``count`` one-bit values the zeros are.

    Returns:
        How many there are, or -1 where the runs end too early.
    """
    found = done = 0
    while done < count:
        if not _next_run(data, state, 1):
            return -1
        run = min(state[LEFT], count - done)
        if state[VALUE] == PACKED:
            for i in range(run):
                bit = state[BIT] + i
                if not (data[bit >> 3] >> (bit & 7)) & 1:
                    result[found] = done + i
                    found += 1
        elif state[VALUE] == 0:
            for i in range(run):
                result[found] = done + i
                found += 1
        done += run
    return found


@numba.njit(cache=True, nogil=True)
def find_lists(
    repetitions: Array, definitions: Array, levels: tuple[int, int, int], result: Array
) -> tuple[int, int, int]:
    """Write at which element each list begins, where some are empty or something is missing.

    Args:
        repetitions: 0 where a list begins.
        definitions: how much there is of each.
        levels: the definitions from which on there are a list, an element in it, and its value.
        result: one place for each level.

    Returns:
        The numbers of lists, of elements, and of lists that are not there and elements without a
        value.
    """
    there, element, present = levels
    lists = elements = missing = 0
    for i in range(len(repetitions)):
        if repetitions[i] == 0:
            result[lists] = elements
            lists += 1
        if definitions[i] >= element:
            elements += 1
            missing += definitions[i] < present
        missing += definitions[i] < there
    return lists, elements, missing
