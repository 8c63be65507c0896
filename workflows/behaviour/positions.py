"""Which interactions of a history are samples: positions in it, as a range for each history."""

from __future__ import annotations

from typing import Any

import numpy as np

from .interaction_roles import counted_before

TRAIN = "train"
TEST = "test"
VALIDATION = "validation"


def last_mappings(validates: bool) -> tuple[str, ...]:
    """The mappings where each user's last interactions are held out, in the order of time."""
    return (TRAIN, VALIDATION, TEST) if validates else (TRAIN, TEST)


def sample_positions(
    lengths: Any, mapping: str, least_before: Any, validates: bool = False
) -> tuple[Any, Any]:
    """Say of each history from which position to which other one its samples are.

    The last interaction is the test's, the one before it validates where one should, all before
    them are for training.

    >>> [ends.tolist() for ends in sample_positions(np.array([4, 1, 0]), "train", 1)]
    [[1, 0, 0], [3, 0, 0]]
    >>> [ends.tolist() for ends in sample_positions(np.array([4, 1, 0]), "test", 1)]
    [[3, 0, 0], [4, 1, 0]]
    >>> [ends.tolist() for ends in sample_positions(np.array([4, 1]), "validation", 1, True)]
    [[2, 0], [3, 0]]

    Args:
        lengths: [histories] How many interactions each history has.
        mapping: ``"train"``, ``"validation"`` or ``"test"``.
        least_before: Interactions that a sample that does not test has before it at least; or, of
            each history, the first position that has enough before it.
        validates: Whether there is a part that validates.

    Returns:
        [histories] the first position, and the one after the last; equal where there is none.
    """
    last = np.maximum(lengths - 1, 0)
    if mapping == TEST:
        return last, lengths
    ends = np.maximum(last - 1, 0) if validates else last
    begins = ends if mapping == VALIDATION else 0
    ends = last if mapping == VALIDATION else ends
    return np.minimum(np.maximum(least_before, begins), ends), ends


def part_ends(parts: Any, offsets: Any, part: int) -> Any:
    """The position after the last one of a part, of each history, whose parts follow each other.

    >>> part_ends(np.array([0, 0, 2, 1, 1]), np.array([0, 3, 5]), 1).tolist()
    [2, 2]

    Args:
        parts: [places] The part of each place of all histories.
        offsets: [histories + 1] Where each history begins.
        part: Which part; those before it are counted.
    """
    counts = counted_before(parts <= part)
    return counts[offsets[1:]] - counts[offsets[:-1]]


def part_positions(before: Any, ends: Any, least_before: Any) -> tuple[Any, Any]:
    """Say of each history from which position to which other one the samples of a part are.

    Args:
        before: [histories] The end of the part before it.
        ends: [histories] Its own end.
        least_before: Interactions that a sample has before it at least; or, of each history, the
            first position that has enough before it.
    """
    return np.minimum(np.maximum(before, least_before), ends), ends
