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

from ...foundation.hashing import GOLDEN, UNIT, mix, mix_arrays
from ...schemas.population import Population

MOST_BITS = 22
MOST_DRAWS = 32
FRESH_SALT = 0xF2E54
AGAIN_SALT = np.uint64(0xA6A12)
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


@numba.njit(cache=True, nogil=True)
def draw_unknown(
    key: Any, cumulative: Any, guide: Any, shift: Any, own: Any, first: Any, stop: Any
) -> Any:
    """Draw 0 of a row, again while it is one of the user's own items, ``own[first:stop]``.

    After some draws, of a user who has nearly all items, the next one that the user has not; a user
    who has all of them keeps what was drawn. Without own items it is :func:`draw_item`.

    Args:
        key: Of the row.
        cumulative: Of the :class:`Drawing`.
        guide: Of the :class:`Drawing`.
        shift: Of the :class:`Drawing`.
        own: Items of users, ascending for each: see :func:`own_items`.
        first: Where the user's begin.
        stop: Where they end.
    """
    item = draw_item(key, 0, cumulative, guide, shift)
    for again in range(1, MOST_DRAWS):
        if not _is_among(own, first, stop, item):
            return item
        item = draw_item(mix(key ^ (AGAIN_SALT + np.uint64(again))), 0, cumulative, guide, shift)
    for _ in range(1, len(cumulative)):  # every item once
        is_drawn = cumulative[item] > cumulative[item - 1]
        if is_drawn and not _is_among(own, first, stop, item):
            return item
        item = item + 1 if item + 1 < len(cumulative) else 1
    return item


@numba.njit(cache=True, nogil=True)
def _is_among(own: Any, first: Any, stop: Any, item: Any) -> Any:
    end = stop
    while first < stop:
        middle = (first + stop) >> 1
        if own[middle] < item:
            first = middle + 1
        else:
            stop = middle
    return first < end and own[first] == item


def own_items(items: npt.NDArray[Any], starts: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """The items of each history, ascending, at the places of the history.

    >>> own_items(np.array([3, 1, 2, 9, 4]), np.array([0, 3, 5])).tolist()
    [1, 2, 3, 4, 9]
    """
    users = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    found: npt.NDArray[Any] = items[np.lexsort((items, users))]
    return found


def draw_targets(
    keys: npt.NDArray[np.uint64],
    drawing: Drawing,
    own: npt.NDArray[Any],
    firsts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """:func:`draw_unknown` for each key, with its user's own items."""
    result = np.empty(len(keys), np.int64)
    of = (drawing.cumulative, drawing.guide, drawing.shift)
    _draw_targets(keys, *of, own, firsts, stops, result)
    return result


@numba.njit(cache=True, nogil=True)
def _draw_targets(
    keys: Any, cumulative: Any, guide: Any, shift: Any, own: Any, firsts: Any, stops: Any,
    result: Any,
) -> None:  # fmt: skip
    for i in range(len(keys)):
        result[i] = draw_unknown(
            np.uint64(keys[i]), cumulative, guide, shift, own, firsts[i], stops[i]
        )
