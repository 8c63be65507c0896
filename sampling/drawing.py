"""Draws items one by one where samples are made while they are read: fast, in little memory.

What is drawn is what :func:`~.sample_kernels.draw_negatives` draws. A draw is 64 bits; their
highest ones are looked up in a guide, which says where to begin to search: no division, and
mostly one step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from .hashing import GOLDEN, UNIT, mix, mix_arrays
from .population import Population

MOST_BITS = 22
FRESH_SALT = 0xF2E54
PLACE_SALT = 0x91ACE


@dataclass(frozen=True)
class Drawing:
    """A :class:`~.population.Population`, laid out for single draws."""

    cumulative: npt.NDArray[Any]
    """Interactions with items up to and including an id."""
    guide: npt.NDArray[np.int32]
    """By the highest bits of a draw, the item of the smallest draw that has them."""
    shift: int
    """Bits of a draw that the guide does not look at."""

    @classmethod
    def of(cls, population: Population) -> Drawing:
        """Prepare the draws from a population."""
        cumulative, size = population.cumulative, population.size
        bits = min(MOST_BITS, max(8, len(cumulative).bit_length() + 1))
        draws = np.arange(1 << bits, dtype=np.uint64) << np.uint64(53 - bits)
        index = (draws.astype(np.float64) * UNIT * float(size)).astype(np.int64)
        found = np.searchsorted(cumulative, index, side="right")
        if size < 2**31:
            cumulative = cumulative.astype(np.int32)
        return cls(cumulative, found.astype(np.int32), 64 - bits)


def fresh_seed(seed: int, epoch: int) -> int:
    """The seed of an epoch's own draws; no epoch has that of the fixed draws.

    >>> fresh_seed(5, 0) != fresh_seed(5, 1)
    True
    """
    salt = mix_arrays(np.array([FRESH_SALT + (epoch << 20)], np.uint64), np)
    return int(mix_arrays(salt ^ np.uint64(seed), np)[0])


def place_seed(seed: int) -> int:
    """The seed of the items that are drawn beside positions, for all samples that see them."""
    return int(mix_arrays(np.array([PLACE_SALT], np.uint64) ^ np.uint64(seed), np)[0])


@numba.njit(cache=True, nogil=True)
def search(index: Any, low: Any, cumulative: Any) -> Any:
    """The item of interaction ``index``, which is ``low`` or a later one.

    A draw is as likely in every cell of the guide, so it takes, on average, as many steps as there
    are items for a cell: fewer than one, up to two million items.
    """
    while cumulative[low] <= index:
        low += 1
    return low


@numba.njit(cache=True, nogil=True)
def draw_item(key: Any, draw: Any, cumulative: Any, guide: Any, shift: Any) -> Any:
    """The item of the ``draw``-th draw of a row."""
    bits = mix(key + np.uint64(draw) * GOLDEN)
    index = np.int64(np.float64(bits >> np.uint64(11)) * UNIT * np.float64(cumulative[-1]))
    return search(index, guide[bits >> np.uint64(shift)], cumulative)
