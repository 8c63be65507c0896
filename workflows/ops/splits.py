"""Which interactions train, validate and test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..behaviour.split import Split

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class LastInteraction:
    """The last interaction of each user tests, and the one before it validates."""

    validation: bool = True
    """Whether one validates."""


@dataclass(frozen=True)
class ByTime:
    """Interactions of a time and later test; those from an earlier time on validate."""

    test_from: str | int | float
    """A number or a date, as the times of the log are."""
    validation_from: str | int | float | None = None
    """None for no part that validates."""


@dataclass(frozen=True)
class ByUsers:
    """A share of the users tests, another one validates; a user's key and the seed decide."""

    test: float
    validation: float | None = None


def rules_of_split(split: LastInteraction | ByTime | ByUsers) -> dict[str, Any]:
    """Say a split as the rules of samples do.

    >>> rules_of_split(ByTime(30))
    {'test_from': '30', 'validation_from': None}
    """
    if isinstance(split, LastInteraction):
        return {"validation": "newest" if split.validation else None}
    if isinstance(split, ByUsers):
        return {"test_users": split.test, "validation_users": split.validation}
    first, second = (
        None if t is None else str(t) for t in (split.test_from, split.validation_from)
    )
    return {"test_from": first, "validation_from": second}


def parts_of(
    split: Split | None,
    rows: pa.Table,
    user: str,
    timestamp: str,
    given: Array | None,
    is_sample: Array,
    offsets: Array,
    validates: bool,
) -> Array:
    """Say of each row which part it belongs to: 0 trains, and so on in the order of mappings.

    Args:
        split: The split; None where the last sample of each user tests.
        rows: The rows in the order of users and times.
        user: The user's column.
        timestamp: The timestamp's.
        given: [rows] The parts, where the files of the log are the split.
        is_sample: [rows] Which rows are samples.
        offsets: [users + 1] Where each user's rows begin.
        validates: Whether the sample before the last one validates.
    """
    if split is None:
        return last_parts(is_sample, offsets, 2 if validates else 1)
    if given is not None:
        return given
    return split.parts(*(rows[name].combine_chunks() for name in (user, timestamp)))


def last_parts(is_sample: Array, offsets: Array, held_out: int) -> Array:
    """Number the last samples of each user as the last parts; all else is part 0.

    >>> last_parts(np.array([1, 1, 1, 0, 1], bool), np.array([0, 4, 5]), 2).tolist()
    [0, 1, 2, 0, 2]

    Args:
        is_sample: [rows] Which rows are samples.
        offsets: [users + 1] Where each user's rows begin.
        held_out: How many samples of each user do not train.
    """
    places = np.flatnonzero(is_sample)
    ends = np.searchsorted(places, offsets[1:])
    of_user = np.searchsorted(offsets, places, side="right") - 1
    behind = ends[of_user] - np.arange(len(places)) - 1
    parts = np.zeros(len(is_sample), np.int64)
    parts[places] = np.maximum(held_out - behind, 0)
    return parts
