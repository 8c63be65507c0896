"""The loops that write samples to their places in a batch, compiled by numba.

A sample is a place of a history, in an array of all histories' items one after the other: the
target stands there (or a drawn item, if the label is 0), its window before it.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from ...sampling.drawing import draw_item, search
from ...sampling.hashing import GOLDEN, UNIT, mix, row_key

Array = npt.NDArray[Any]


@numba.njit(cache=True, nogil=True)
def keys_of(seed: Any, users: Array, positions: Array, labels: Array) -> Array:
    """The numbers that stand for samples, as :func:`~merlin_sim.sampling.hashing.row_key`."""
    keys = np.empty(len(users), np.uint64)
    for i in range(len(users)):
        keys[i] = row_key(np.uint64(seed), users[i], positions[i], np.int64(labels[i]))
    return keys


@numba.njit(cache=True, nogil=True)
def write_targets(
    items: Array, starts: Array, positions: Array, labels: Array, keys: Array,
    cumulative: Array, guide: Array, shift: int, places: Array, result: Array,
) -> None:  # fmt: skip
    """Write each sample's item: draw 0 of its twin."""
    for i in range(len(places)):
        if labels[i] == 1:
            result[places[i]] = items[starts[i] + positions[i]]
        else:
            result[places[i]] = draw_item(keys[i], 0, cumulative, guide, shift)


@numba.njit(cache=True, nogil=True)
def write_windows(
    items: Array, starts: Array, positions: Array, places: Array, result: Array
) -> None:
    """Write the interactions before each sample to the right end of its row, zeros before."""
    width = result.shape[1]
    for i in range(len(places)):
        length = min(positions[i], width)
        stop = starts[i] + positions[i]
        row = result[places[i]]
        row[: width - length] = 0
        source = items[stop - length : stop]
        target = row[width - length :]
        for j in range(length):
            target[j] = source[j]


@numba.njit(cache=True, nogil=True)
def write_negatives(
    positions: Array, keys: Array, cumulative: Array, guide: Array, shift: int,
    places: Array, result: Array,
) -> None:  # fmt: skip
    """Write as many drawn items as the window has: draws 1, 2, ... from the oldest on.

    As ``draw_item`` for each, but a step of all draws at a time, so that the processor hashes
    several at once and waits for memory once for many.
    """
    width = result.shape[1]
    indexes = np.empty(width, cumulative.dtype)
    cells = np.empty(width, np.int32)
    size = np.float64(cumulative[-1])
    for i in range(len(places)):
        length = min(positions[i], width)
        row = result[places[i]]
        row[: width - length] = 0
        row = row[width - length :]
        for j in range(length):
            bits = mix(keys[i] + np.uint64(j + 1) * GOLDEN)
            cells[j] = bits >> np.uint64(shift)
            indexes[j] = np.float64(bits >> np.uint64(11)) * UNIT * size
        for j in range(length):
            row[j] = guide[cells[j]]
        for j in range(length):
            row[j] = search(indexes[j], row[j], guide[cells[j] + 1], cumulative)


@numba.njit(cache=True, nogil=True)
def look_up(table: Array, ids: Array, places: Array, result: Array) -> None:
    """Write the feature of each target to its place."""
    for i in range(len(places)):
        result[places[i]] = table[ids[places[i]]]


@numba.njit(cache=True, nogil=True)
def look_up_rows(table: Array, ids: Array, places: Array, result: Array) -> None:
    """Write the feature of each item of the rows ``places``; that of 0 is 0."""
    for i in range(len(places)):
        source = ids[places[i]]
        target = result[places[i]]
        for j in range(len(target)):
            target[j] = table[source[j]]


@numba.njit(cache=True, nogil=True)
def expand(
    starts: Array, rows: Array, begins: Array, first: int, stop: int
) -> tuple[Array, Array, Array]:
    """Say which samples stand at the places ``first`` to ``stop`` of a part's order.

    Args:
        starts: [stretches + 1] How many positions stand before each stretch.
        rows: [stretches] Whose it is.
        begins: [stretches] Its first position.
        first: A place: twice as many as positions, a twin before each positive.
        stop: The place after the last one.
    """
    count = stop - first
    of_rows = np.empty(count, np.int64)
    positions = np.empty(count, np.int64)
    labels = np.empty(count, np.int8)
    stretch = np.searchsorted(starts, first >> 1, side="right") - 1
    for i in range(count):
        place = (first + i) >> 1
        while starts[stretch + 1] <= place:
            stretch += 1
        of_rows[i] = rows[stretch]
        positions[i] = begins[stretch] + (place - starts[stretch])
        labels[i] = (first + i) & 1
    return of_rows, positions, labels
