"""What part each interaction of a log plays: it joins the history, it is a sample, or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...schemas.users_layout import JOINS, POSITIVE, SAMPLE

TAKEN = JOINS | SAMPLE | POSITIVE
SHOWN = SAMPLE


@dataclass(frozen=True)
class SamplePlaces:
    """Where the samples stand among the interactions of all histories, and what was before them.

    What was taken is what joins the history.
    """

    places: Any
    """[samples] Their places among all interactions."""
    before: Any
    """[samples] How many interactions before each, of all histories, were taken."""
    positives: Any
    """[samples + 1] How many positive samples stand before each, and before the end."""
    offsets: Any
    """[histories + 1] Where the samples of each history begin."""
    begins: Any
    """[histories + 1] How many were taken before each history."""


def sample_places(roles: Any, offsets: Any, moments: Any = None) -> SamplePlaces:
    """Find the samples of histories.

    >>> found = sample_places(np.array([JOINS, TAKEN, SHOWN, TAKEN]), np.array([0, 3, 4]))
    >>> found.places.tolist(), found.before.tolist(), found.positives.tolist()
    ([1, 2, 3], [1, 2, 2], [0, 1, 1, 2])
    >>> found.offsets.tolist(), found.begins.tolist()
    ([0, 2, 3], [0, 2, 3])

    Args:
        roles: [places] What part each interaction plays.
        offsets: [histories + 1] Where each history begins.
        moments: [places] When each interaction was, where what is of a sample's own time does not
            count as before it; None where what stands before it does.
    """
    is_sample = (roles & SAMPLE) > 0
    places = np.flatnonzero(is_sample)
    taken = counted_before((roles & JOINS) > 0)
    positive = (roles[places] & POSITIVE) > 0
    return SamplePlaces(
        places=places,
        before=taken[places if moments is None else first_of_moments(moments, offsets)[places]],
        positives=counted_before(positive),
        offsets=counted_before(is_sample)[offsets],
        begins=taken[offsets],
    )


def first_of_moments(moments: Any, offsets: Any) -> Any:
    """The place of the first interaction of each one's own time, in its history.

    >>> first_of_moments(np.array([3, 3, 5, 5, 5]), np.array([0, 3, 3, 5])).tolist()
    [0, 0, 2, 3, 3]

    Args:
        moments: [places] When each was, in the order of time within a history.
        offsets: [histories + 1] Where each history begins.
    """
    begins = np.ones(len(moments), bool)
    begins[1:] = moments[1:] != moments[:-1]
    begins[offsets[:-1][offsets[:-1] < len(moments)]] = True
    return np.flatnonzero(begins)[np.cumsum(begins) - 1]


def roles_of_labels(labels: Any) -> Any:
    """What labels alone say: what was taken joins the history, and all are samples.

    >>> roles_of_labels(np.array([1, 0])).tolist() == [TAKEN, SHOWN]
    True
    """
    return labels * (TAKEN - SHOWN) + SHOWN


def counted_before(marks: Any) -> Any:
    """Count, for each place and for the end, the marks before it.

    >>> counted_before(np.array([0, 1, 0, 1])).tolist()
    [0, 0, 1, 1, 2]

    Args:
        marks: [places] 1 or true where something is.
    """
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(marks, dtype=np.int64)])


def first_with_enough_taken(samples: SamplePlaces, least_before: int) -> Any:
    """The first sample of each history that has so many taken interactions before it.

    >>> roles = roles_of_labels(np.array([0, 1, 0, 1, 1, 0]))
    >>> first_with_enough_taken(sample_places(roles, np.array([0, 4, 6])), 1).tolist()
    [2, 1]

    Args:
        samples: The samples of all histories.
        least_before: How many.

    Returns:
        [histories] Where a history has none, some position at its end or beyond.
    """
    return (
        np.searchsorted(samples.before, samples.begins[:-1] + least_before) - samples.offsets[:-1]
    )
