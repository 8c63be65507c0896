"""What turns histories into samples, for CPU arrays: numba loops over rows and elements.

Pure functions of arrays and a seed. Lists come as values and offsets, as arrow has them.
``sample_arrays.py`` has the same functions for whole arrays of numpy or cupy.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from ...foundation.hashing import ORDER_SALT, SLICE_SALT, draw_below, mix, row_key, sample_key

Ids = npt.NDArray[np.int64]


@numba.njit(cache=True, nogil=True)
def select_prefixes(
    users: Ids, begins: Ids, ends: Ids, seed: int, part: int, parts: int
) -> tuple[Ids, Ids]:
    """Choose the interactions to predict.

    Args:
        users: [histories] User id of each history.
        begins: [histories] The first position to predict.
        ends: [histories] The position after the last one to predict.
        seed: Decides, with user id and position, to which part a row belongs.
        part: The part to choose, 0 to parts - 1.
        parts: Into how many parts the rows are dealt.

    Returns:
        [rows] the history of each chosen interaction and its position in it.
    """
    count = 0
    rows = np.empty(16, np.int64)
    positions = np.empty(16, np.int64)
    for row in range(len(users)):
        for position in range(begins[row], ends[row]):
            if parts > 1:
                scattered = mix(row_key(seed, users[row], position, 0) ^ SLICE_SALT)
                if scattered % np.uint64(parts) != np.uint64(part):
                    continue
            if count == len(rows):
                rows = np.concatenate((rows, np.empty_like(rows)))
                positions = np.concatenate((positions, np.empty_like(positions)))
            rows[count] = row
            positions[count] = position
            count += 1
    return rows[:count].copy(), positions[:count].copy()


@numba.njit(cache=True, nogil=True)
def cut_prefixes(
    values: Ids, offsets: Ids, rows: Ids, positions: Ids, longest: int
) -> tuple[Ids, Ids, Ids]:
    """Cut out the interaction at each position and the up to ``longest`` before it.

    Returns:
        [rows] the items at the positions, and the histories before them as values and offsets.
    """
    new_offsets = np.empty(len(rows) + 1, np.int64)
    new_offsets[0] = 0
    for row in range(len(rows)):
        new_offsets[row + 1] = new_offsets[row] + min(positions[row], longest)
    targets = np.empty(len(rows), values.dtype)
    history = np.empty(new_offsets[-1], values.dtype)
    for row in range(len(rows)):
        place = offsets[rows[row]] + positions[row]
        targets[row] = values[place]
        length = new_offsets[row + 1] - new_offsets[row]
        history[new_offsets[row] : new_offsets[row + 1]] = values[place - length : place]
    return targets, history, new_offsets


@numba.njit(cache=True, nogil=True)
def cut_taken(
    values: Ids,
    places: Ids,
    taken: Ids,
    before: Ids,
    positives: Ids,
    begins: Ids,
    offsets: Ids,
    rows: Ids,
    positions: Ids,
    longest: int,
) -> tuple[Ids, npt.NDArray[np.int8], Ids, Ids]:
    """Cut out the item of each sample, and the up to ``longest`` that were taken before it.

    Args:
        values: Items of all histories, whatever part they play.
        places: Where the samples are among them, and so on as
            :class:`~merlin_sim.workflows.behaviour.interaction_roles.SamplePlaces` has it.
        taken: Those items that were taken.
        before: See ``SamplePlaces``.
        positives: See there.
        begins: See there.
        offsets: See there.
        rows: [rows] Whose sample.
        positions: [rows] Positions among the history's samples.
        longest: The longest history.

    Returns:
        [rows] the samples' items and their labels, and the histories before them as values and
        offsets.
    """
    new_offsets = np.empty(len(rows) + 1, np.int64)
    new_offsets[0] = 0
    targets = np.empty(len(rows), values.dtype)
    labels = np.empty(len(rows), np.int8)
    for row in range(len(rows)):
        sample = offsets[rows[row]] + positions[row]
        targets[row] = values[places[sample]]
        labels[row] = positives[sample + 1] - positives[sample]
        new_offsets[row + 1] = new_offsets[row] + min(before[sample] - begins[rows[row]], longest)
    history = np.empty(new_offsets[-1], values.dtype)
    for row in range(len(rows)):
        stop = before[offsets[rows[row]] + positions[row]]
        length = new_offsets[row + 1] - new_offsets[row]
        history[new_offsets[row] : new_offsets[row + 1]] = taken[stop - length : stop]
    return targets, labels, history, new_offsets


def order_of_samples(
    users: Ids, positions: Ids, labels: npt.NDArray[np.int8], seed: int, twins: int
) -> Ids:
    """Scatter samples and the twins of positives.

    Args:
        users: [rows] User ids.
        positions: [rows] Positions in the user's history.
        labels: [rows] Whether the item was taken.
        seed: Decides the order, with the rest.
        twins: How many twins a positive has.

    Returns:
        Entry row * (twins + 1) + slot for each row of the dataset; the last slot is the sample
        itself, those before it are its twins.
    """
    entries, keys = _keys_of_samples(users, positions, labels, seed, twins)
    # Numba's own sort would take seconds to compile.
    order: Ids = entries[np.argsort(keys, kind="stable")]
    return order


@numba.njit(cache=True, nogil=True)
def _keys_of_samples(
    users: Ids, positions: Ids, labels: npt.NDArray[np.int8], seed: int, twins: int
) -> tuple[Ids, npt.NDArray[np.uint64]]:
    count = len(users)
    for row in range(len(users)):
        count += twins * labels[row]
    entries = np.empty(count, np.int64)
    keys = np.empty(count, np.uint64)
    place = 0
    for row in range(len(users)):
        for slot in range(twins if labels[row] == 0 else 0, twins + 1):
            label = np.int64(labels[row]) if slot == twins else 0
            twin = 0 if slot == twins else slot
            key = sample_key(seed, users[row], positions[row], label, twin)
            entries[place] = row * (twins + 1) + slot
            keys[place] = mix(key ^ ORDER_SALT)
            place += 1
    return entries, keys


@numba.njit(cache=True, nogil=True)
def _item_at(index: Any, cumulative: Ids, first: Ids, block: int) -> Any:
    low = first[index // block]
    high = first[index // block + 1]
    while low < high:
        middle = (low + high) >> 1
        if cumulative[middle] <= index:
            low = middle + 1
        else:
            high = middle
    return low


@numba.njit(cache=True, nogil=True)
def draw_negatives(
    users: Ids,
    positions: Ids,
    labels: npt.NDArray[np.int8],
    targets: Ids,
    values: Ids,
    offsets: Ids,
    order: Ids,
    twins: int,
    seed: int,
    cumulative: Ids,
    first: Ids,
    block: int,
) -> tuple[Ids, Ids, Ids, Ids]:
    """Give each sample its negative history, and each twin a drawn target.

    Draw 0 of a row is its target, draws 1, 2, ... its negative history.

    Args:
        users: [rows] User ids.
        positions: [rows] Positions in the user's history.
        labels: [rows] Whether the item was taken.
        targets: [rows] The items.
        values: [elements] Items of the histories.
        offsets: [rows + 1] Where each history begins.
        order: [samples] The output, as :func:`order_of_samples` has it.
        twins: How many twins a positive has.
        seed: Decides, with user id, position and label, every draw.
        cumulative: Of the :class:`Population`.
        first: Of the :class:`Population`.
        block: Of the :class:`Population`.

    Returns:
        [samples] targets, and positive histories, negative histories and offsets of both.
    """
    size = cumulative[-1]
    new_targets = np.empty(len(order), values.dtype)
    new_offsets = np.empty(len(order) + 1, np.int64)
    new_offsets[0] = 0
    for place in range(len(order)):
        row = order[place] // (twins + 1)
        new_offsets[place + 1] = new_offsets[place] + offsets[row + 1] - offsets[row]
    positives = np.empty(new_offsets[-1], values.dtype)
    negatives = np.empty(new_offsets[-1], values.dtype)
    for place in range(len(order)):
        row = order[place] // (twins + 1)
        slot = order[place] % (twins + 1)
        label = np.int64(labels[row]) if slot == twins else 0
        twin = 0 if slot == twins else slot
        key = sample_key(seed, users[row], positions[row], label, twin)
        begin = new_offsets[place]
        length = new_offsets[place + 1] - begin
        positives[begin : begin + length] = values[offsets[row] : offsets[row + 1]]
        for element in range(length):
            index = draw_below(key, element + 1, size)
            negatives[begin + element] = _item_at(index, cumulative, first, block)
        if slot == twins:
            new_targets[place] = targets[row]
        else:
            new_targets[place] = _item_at(draw_below(key, 0, size), cumulative, first, block)
    return new_targets, positives, negatives, new_offsets
