"""Which interactions of a history are samples: positions in it, as a range for each history."""

from __future__ import annotations

from typing import Any

TRAIN = "train"
TEST = "test"
VALIDATION = "validation"


def sample_positions(lengths: Any, mapping: str, least_before: Any, xp: Any) -> tuple[Any, Any]:
    """Say of each history from which position to which other one its samples are.

    The last interaction is the test's, all before it are for training.

    >>> import numpy as np
    >>> [ends.tolist() for ends in sample_positions(np.array([4, 1, 0]), "train", 1, np)]
    [[1, 0, 0], [3, 0, 0]]
    >>> [ends.tolist() for ends in sample_positions(np.array([4, 1, 0]), "test", 1, np)]
    [[3, 0, 0], [4, 1, 0]]

    Args:
        lengths: [histories] How many interactions each history has.
        mapping: ``"train"`` or ``"test"``.
        least_before: Interactions that a sample of ``"train"`` has before it at least; or, of
            each history, the first position that has enough before it.
        xp: numpy or cupy.

    Returns:
        [histories] the first position, and the one after the last; equal where there is none.
    """
    last = xp.maximum(lengths - 1, 0)
    if mapping == TEST:
        return last, lengths
    return xp.minimum(xp.maximum(least_before, 0), last), last


def taken_before(labels: Any, xp: Any) -> Any:
    """Count, for each place of all histories and for their end, what was taken before it.

    >>> import numpy as np
    >>> taken_before(np.array([0, 1, 0, 1]), np).tolist()
    [0, 0, 1, 1, 2]

    Args:
        labels: [places] 1 where an item was taken, 0 where it was shown alone.
        xp: numpy or cupy.
    """
    return xp.concatenate([xp.zeros(1, xp.int64), xp.cumsum(labels, dtype=xp.int64)])


def first_with_enough_taken(offsets: Any, before: Any, least_before: int, xp: Any) -> Any:
    """The first position of each history that has so many taken items before it.

    >>> import numpy as np
    >>> before = taken_before(np.array([0, 1, 0, 1, 1, 0]), np)
    >>> first_with_enough_taken(np.array([0, 4, 6]), before, 1, np).tolist()
    [2, 1]

    Args:
        offsets: [histories + 1] Where each history begins.
        before: What :func:`taken_before` gives.
        least_before: How many.
        xp: numpy or cupy.

    Returns:
        [histories] Where a history has none, some position at its end or beyond.
    """
    starts = offsets[:-1]
    return xp.searchsorted(before, before[starts] + least_before) - starts


def part_ends(parts: Any, offsets: Any, part: int, xp: Any) -> Any:
    """The position after the last one of a part, of each history, whose parts follow each other.

    >>> import numpy as np
    >>> part_ends(np.array([0, 0, 2, 1, 1]), np.array([0, 3, 5]), 1, np).tolist()
    [2, 2]

    Args:
        parts: [places] The part of each place of all histories.
        offsets: [histories + 1] Where each history begins.
        part: Which part; those before it are counted.
        xp: numpy or cupy.
    """
    counts = taken_before(parts <= part, xp)
    return counts[offsets[1:]] - counts[offsets[:-1]]


def part_positions(before: Any, ends: Any, least_before: Any, xp: Any) -> tuple[Any, Any]:
    """Say of each history from which position to which other one the samples of a part are.

    Args:
        before: [histories] The end of the part before it.
        ends: [histories] Its own end.
        least_before: Interactions that a sample has before it at least; or, of each history, the
            first position that has enough before it.
        xp: numpy or cupy.
    """
    return xp.minimum(xp.maximum(before, least_before), ends), ends
