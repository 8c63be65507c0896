"""Which interactions may be predicted, and what a sample sees of its user's history."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..schemas.users_layout import JOINS, POSITIVE, SAMPLE

Array = npt.NDArray[Any]


class Positions(NamedTuple):
    """The interactions that may be predicted, of some users."""

    interactions: Array | None
    """[positions] Which of all interactions they are; None for all of them."""
    starts: Array
    """[users + 1] Where those of each user begin."""
    seen: Array | None
    """[positions] How many of its user's history a sample sees; None for all before it."""
    labels: Array | None
    """[positions] 1 for those that were taken; None where all were."""


def find_positions(starts: Array, roles: Array | None, same_time: Array | None) -> Positions:
    """Find what may be predicted, and what it sees; of all users together, [interactions].

    ``starts``, [users + 1], say where the interactions of each user begin.

    >>> found = find_positions(np.array([0, 4]), np.array([1, 7, 2, 7]), np.array([0, 0, 1, 0]))
    >>> [values.tolist() for values in found]
    [[1, 2, 3], [0, 3], [1, 1, 2], [1, 0, 1]]
    """
    if roles is None:
        if same_time is None:
            return Positions(None, starts, None, None)
        position = np.arange(len(same_time)) - np.repeat(starts[:-1], np.diff(starts))
        return Positions(None, starts, position - same_time, None)
    interactions = np.flatnonzero(roles & SAMPLE)
    joined = counted_before(roles & JOINS)
    first = interactions if same_time is None else interactions - same_time[interactions]
    sample_starts = counted_before(roles & SAMPLE)[starts]
    history_starts = np.repeat(joined[starts[:-1]], np.diff(sample_starts))
    labels = ((roles[interactions] & POSITIVE) > 0).astype(np.int8)
    return Positions(interactions, sample_starts, joined[first] - history_starts, labels)


def counted_before(marks: Array) -> Array:
    """Count, for each index and for the end, the marks before it.

    >>> counted_before(np.array([0, 4, 0, 1])).tolist()
    [0, 0, 1, 1, 2]
    """
    return np.concatenate([[0], np.cumsum(marks > 0)])
