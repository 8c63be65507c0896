"""The loops that write samples to their places in a batch, compiled by numba.

A sample is a place of a history, in an array of all histories' items one after the other: the
target stands there (or a drawn item, if the label is 0), its window before it.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from ...foundation.hashing import GOLDEN, UNIT, mix, sample_key, user_key
from .drawing import draw_unknown, search

Array = npt.NDArray[Any]


@numba.njit(cache=True, nogil=True)
def keys_of(seed: Any, users: Array, positions: Array, labels: Array, twins: Array) -> Array:
    """The numbers that stand for samples, as :func:`~merlin_sim.foundation.hashing.sample_key`."""
    keys = np.empty(len(users), np.uint64)
    for i in range(len(users)):
        keys[i] = sample_key(
            np.uint64(seed), users[i], positions[i], np.int64(labels[i]), np.int64(twins[i])
        )
    return keys


@numba.njit(cache=True, nogil=True)
def write_targets(
    items: Array, starts: Array, positions: Array, labels: Array, keys: Array,
    cumulative: Array, guide: Array, shift: int, own: Array, firsts: Array, stops: Array,
    places: Array, result: Array,
) -> None:  # fmt: skip
    """Write each sample's item: draw 0 of its twin."""
    for i in range(len(places)):
        if labels[i] == 1:
            result[places[i]] = items[starts[i] + positions[i]]
        else:
            result[places[i]] = draw_unknown(
                keys[i], cumulative, guide, shift, own, firsts[i], stops[i]
            )


@numba.njit(cache=True, nogil=True)
def write_windows(items: Array, starts: Array, seen: Array, places: Array, result: Array) -> None:
    """Write the interactions that each sample sees to the right end of its row, zeros before."""
    width = result.shape[1]
    for i in range(len(places)):
        length = min(seen[i], width)
        stop = starts[i] + seen[i]
        row = result[places[i]]
        row[: width - length] = 0
        source = items[stop - length : stop]
        target = row[width - length :]
        for j in range(length):
            target[j] = source[j]


@numba.njit(cache=True, nogil=True)
def write_intervals(
    times: Array, starts: Array, positions: Array, seen: Array, unit: float, places: Array,
    result: Array,
) -> None:  # fmt: skip
    """Write how long before each sample its window's interactions were, zeros before them.

    ``times`` and ``unit`` are in seconds; the rest as of :func:`write_windows`.
    """
    width = result.shape[1]
    for i in range(len(places)):
        length = min(seen[i], width)
        stop = starts[i] + seen[i]
        now = times[starts[i] + positions[i]]
        row = result[places[i]]
        row[: width - length] = 0
        for j in range(length):
            row[width - length + j] = (now - times[stop - length + j]) / unit


@numba.njit(cache=True, nogil=True)
def write_negatives(
    seen: Array, keys: Array, cumulative: Array, guide: Array, shift: int,
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
        length = min(seen[i], width)
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
            row[j] = search(indexes[j], row[j], cumulative)


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
    starts: Array, rows: Array, begins: Array, of_position: int, first: int, stop: int
) -> tuple[Array, Array, Array, Array]:
    """Say which samples stand at the places ``first`` to ``stop`` of a part's order.

    Args:
        starts: [stretches + 1] How many positions stand before each stretch.
        rows: [stretches] Whose it is.
        begins: [stretches] Its first position.
        of_position: Samples of each position: its twins, and after them the positive.
        first: A place among all samples.
        stop: The place after the last one.
    """
    count = stop - first
    of_rows = np.empty(count, np.int64)
    positions = np.empty(count, np.int64)
    labels = np.empty(count, np.int8)
    twins = np.empty(count, np.int32)
    stretch = np.searchsorted(starts, first // of_position, side="right") - 1
    for i in range(count):
        place, slot = (first + i) // of_position, (first + i) % of_position
        while starts[stretch + 1] <= place:
            stretch += 1
        of_rows[i] = rows[stretch]
        positions[i] = begins[stretch] + (place - starts[stretch])
        labels[i] = slot == of_position - 1
        twins[i] = 0 if labels[i] else slot
    return of_rows, positions, labels, twins


@numba.njit(cache=True, nogil=True)
def seen_at(same_time: Array, start: Any, position: Any) -> Any:
    """How many interactions of a user the sample at a position sees.

    Args:
        same_time: Of all histories, how many before each interaction have its own time; empty
            where all that stands before a sample is seen.
        start: Where the user's history begins among them.
        position: The sample's.
    """
    return position - (same_time[start + position] if len(same_time) else 0)


@numba.njit(cache=True, nogil=True)
def cut_by_reach(
    begins: Array, ends: Array, starts: Array, same_time: Array, longest: int
) -> tuple[Array, Array, Array]:
    """Cut users' positions into stretches whose samples see nearly the same.

    A stretch has at most ``longest`` positions, and its last sample sees at most ``longest`` - 1
    interactions more than its first one.

    Returns:
        [stretches] whose each is, its first position, and how many it has.
    """
    most = (ends - begins).sum()
    rows, firsts, counts = (
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
    )
    number = 0
    for row in range(len(begins)):
        first = begins[row]
        while first < ends[row]:
            least = seen_at(same_time, starts[row], first)
            stop = first + 1
            while (
                stop < ends[row]
                and stop - first < longest
                and seen_at(same_time, starts[row], stop) - least < longest
            ):
                stop += 1
            rows[number], firsts[number], counts[number] = row, first, stop - first
            number += 1
            first = stop
    return rows[:number].copy(), firsts[:number].copy(), counts[:number].copy()


@numba.njit(cache=True, nogil=True)
def write_stretches(
    items: Array, starts: Array, least: Array, most: Array, width: int, places: Array,
    result: Array,
) -> None:  # fmt: skip
    """Write what the samples of each stretch see, together, to the right end of its row.

    Args:
        items: All histories' items.
        starts: [stretches] Where the history of each stretch begins among them.
        least: [stretches] How many interactions its first sample sees.
        most: [stretches] How many its last one sees.
        width: Interactions that a sample sees at most.
        places: [stretches] Its row of the result.
        result: [rows, length] Zeros stand before what is seen.
    """
    for i in range(len(places)):
        first, stop = max(least[i] - width, 0), most[i]
        row = result[places[i]]
        room = len(row) - (stop - first)
        row[:room] = 0
        source = items[starts[i] + first : starts[i] + stop]
        target = row[room:]
        for j in range(stop - first):
            target[j] = source[j]


@numba.njit(cache=True, nogil=True)
def write_stretch_intervals(
    times: Array, starts: Array, begins: Array, counts: Array, same_time: Array, width: int,
    unit: float, places: Array, result: Array,
) -> None:  # fmt: skip
    """Write of each position of a stretch how long before it what it sees was, zeros elsewhere.

    ``times`` and ``unit`` are in seconds; ``begins`` and ``counts`` are the positions of each
    stretch, ``same_time`` is as :func:`seen_at` has it, the result is [rows, positions, length].
    Where a stretch is short, the rest is as of its last one.
    """
    length = result.shape[2]
    for i in range(len(places)):
        first = max(seen_at(same_time, starts[i], begins[i]) - width, 0)
        room = length - (seen_at(same_time, starts[i], begins[i] + counts[i] - 1) - first)
        for step in range(result.shape[1]):
            position = begins[i] + min(step, counts[i] - 1)
            seen = seen_at(same_time, starts[i], position)
            row = result[places[i], step]
            row[:] = 0
            now = times[starts[i] + position]
            for j in range(max(seen - width, 0), seen):
                row[room + j - first] = (now - times[starts[i] + j]) / unit


@numba.njit(cache=True, nogil=True)
def write_stretch_negatives(
    seed: Any, users: Array, least: Array, most: Array, width: int,
    cumulative: Array, guide: Array, shift: int, places: Array, result: Array,
) -> None:  # fmt: skip
    """Write a drawn item beside each position that :func:`write_stretches` shows.

    Draw 0 of its twin; a step of all draws at a time, as in :func:`write_negatives`.
    """
    length = result.shape[1]
    indexes = np.empty(length, cumulative.dtype)
    cells = np.empty(length, np.int32)
    size = np.float64(cumulative[-1])
    for i in range(len(places)):
        first, stop = max(least[i] - width, 0), most[i]
        row = result[places[i]]
        room = length - (stop - first)
        row[:room] = 0
        row = row[room:]
        key = user_key(np.uint64(seed), users[i])
        for j in range(stop - first):
            bits = mix(mix(key ^ np.uint64(2 * (first + j))))
            cells[j] = bits >> np.uint64(shift)
            indexes[j] = np.float64(bits >> np.uint64(11)) * UNIT * size
        for j in range(stop - first):
            row[j] = guide[cells[j]]
        for j in range(stop - first):
            row[j] = search(indexes[j], row[j], cumulative)


@numba.njit(cache=True, nogil=True)
def write_candidates(
    items: Array, starts: Array, begins: Array, counts: Array, same_time: Array, seed: Any,
    users: Array, cumulative: Array, guide: Array, shift: int, own: Array, firsts: Array,
    stops: Array, of_position: int, length: int, places: Array,
    targets: Array, ends: Array, labels: Array, weights: Array,
) -> None:  # fmt: skip
    """Write each stretch's candidates: of every position its twins and its positive, of one end.

    Where a stretch is short, what is left are fillers: item 0, weight 0, ends that exist.
    """
    for i in range(len(places)):
        row = places[i]
        most = seen_at(same_time, starts[i], begins[i] + counts[i] - 1)
        for candidate in range(targets.shape[1]):
            step, slot = candidate // of_position, candidate % of_position
            label = slot == of_position - 1
            at = begins[i] + min(step, counts[i] - 1)
            ends[row, step] = length - (most - seen_at(same_time, starts[i], at))
            targets[row, candidate] = 0
            labels[row, candidate] = 0.0
            weights[row, candidate] = 0.0
            if step >= counts[i]:
                continue
            weights[row, candidate] = 1.0
            labels[row, candidate] = label
            position = begins[i] + step
            if label:
                targets[row, candidate] = items[starts[i] + position]
            else:
                key = sample_key(np.uint64(seed), users[i], position, np.int64(0), np.int64(slot))
                targets[row, candidate] = draw_unknown(
                    key, cumulative, guide, shift, own, firsts[i], stops[i]
                )
