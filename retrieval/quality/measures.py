"""Recall, NDCG and coverage of answers to users who took one item each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]


def recall(ranks: Ids, most: int) -> float:
    """Return the share of users whose item is among the first ones.

    >>> recall(np.array([0, 3, -1, 20]), 20)
    0.5

    Args:
        ranks: [users] The place of each one's item, from 0; -1 where it is not in the answer.
        most: How many items are looked at.
    """
    return float(np.mean((ranks >= 0) & (ranks < most)))


def ndcg(ranks: Ids, most: int) -> float:
    """Return the normalised discounted cumulative gain, of one item: 1 / log2(2 + its place).

    >>> ndcg(np.array([0, 2, -1, 30]), 20)
    0.375
    """
    found = (ranks >= 0) & (ranks < most)
    gains = np.where(found, 1 / np.log2(2.0 + np.maximum(ranks, 0)), 0.0)
    return float(np.mean(gains))


def coverage(answers: Sequence[Ids], most: int, items: int) -> float:
    """Return the share of all items that are among the first ones of some answer.

    >>> coverage([np.array([1, 2, 3]), np.array([2, 4, 5])], 2, 10)
    0.3
    """
    seen = {int(item) for answer in answers for item in answer[:most]}
    return len(seen) / items


def rank_of(answer: Ids, item: int) -> int:
    """Return the place of an item in an answer, from 0; -1 where it is not there.

    >>> rank_of(np.array([7, 9]), 9), rank_of(np.array([7, 9]), 8)
    (1, -1)
    """
    found = np.flatnonzero(answer == item)
    return int(found[0]) if len(found) else -1
