"""Sums of numbers that do not depend on their order, so that ranks add up to what one rank has."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LIMB_BITS = 24
LIMBS = 4
"""Three of them behind the point: a number counts in parts of 2^-72, whatever it is added to."""


def limbs_of(values: Array) -> npt.NDArray[np.int64]:
    """Cut numbers from 0 up into whole numbers, of 24 bits behind the point: [limbs, numbers].

    >>> limbs_of(np.array([1.5])).tolist()
    [[1], [8388608], [0], [0]]
    """
    rest = np.asarray(values, np.float64)
    found = np.empty((LIMBS, len(rest)), np.int64)
    for limb in range(LIMBS):
        whole = np.floor(rest)
        found[limb] = whole
        rest = (rest - whole) * 2.0**LIMB_BITS  # exact: a power of two, and fewer bits than before
    return found


def total_of(sums: npt.NDArray[np.int64]) -> Fraction:
    """Put the sums of limbs together, [limbs].

    >>> float(total_of(limbs_of(np.array([0.1, 0.2, 0.7])).sum(axis=1)))
    1.0
    """
    return sum(
        (Fraction(int(limb), 1 << (LIMB_BITS * place)) for place, limb in enumerate(sums)),
        Fraction(),
    )


def sums_by(places: Array, values: Array, count: int) -> npt.NDArray[np.int64]:
    """Add up numbers by their places, [limbs, count]; sums of several ranks can be added.

    Args:
        places: [numbers], from 0 to ``count`` - 1.
        values: [numbers], from 0 up; fewer than 2^29 of them, with a sum below 2^53.
        count: how many places there are.
    """
    limbs = limbs_of(values)
    # bincount adds floats: whole numbers of 24 bits stay exact over 2^29 rows.
    rows = [np.bincount(places, limb, count).astype(np.int64) for limb in limbs]
    return np.stack(rows)
