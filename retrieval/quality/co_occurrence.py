"""What is taken after what: the plainest retrieval that knows of items, to compare with."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from .held_out import Clicks

Ids = npt.NDArray[np.int64]

NEWEST = 20
"""How many of a history's items count as those before what was taken."""


class CoOccurrence:
    """How often an item was taken after another, over the root of how often each was there.

    >>> clicks = Clicks(np.array([[0, 1], [0, 1], [2, 1]]), np.array([3, 3, 4]), {})
    >>> CoOccurrence([clicks], 5).nearest(np.array([1]), 2).tolist()
    [3, 4]

    Args:
        parts: Clicked rows.
        rows: Ids of items, 0 among them.
    """

    def __init__(self, parts: Iterable[Clicks], rows: int) -> None:
        """Count."""
        counts = csr_matrix((rows, rows), dtype=np.float32)
        for part in parts:
            before = part.histories[:, -NEWEST:]
            after = np.broadcast_to(part.targets[:, np.newaxis], before.shape)
            real = before > 0
            ones = np.ones(int(real.sum()), np.float32)
            counts = counts + csr_matrix((ones, (before[real], after[real])), (rows, rows))
        befores = np.asarray(counts.sum(axis=1)).reshape(-1)
        afters = np.asarray(counts.sum(axis=0)).reshape(-1)
        counts = counts.multiply(1 / np.sqrt(np.maximum(befores, 1))[:, np.newaxis])
        self._likeness = csr_matrix(counts.multiply(1 / np.sqrt(np.maximum(afters, 1))))

    def nearest(self, history: Ids, most: int) -> Ids:
        """Return the items that were taken most after those of a history, best first.

        Args:
            history: Ids of items, oldest first.
            most: How many; fewer where fewer were ever taken after them.
        """
        scores = np.asarray(self._likeness[history[-NEWEST:]].sum(axis=0)).reshape(-1)
        order = np.argsort(-scores, kind="stable")[:most]
        found: Ids = order[scores[order] > 0]
        return found
