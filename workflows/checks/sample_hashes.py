"""Hashes of rows, kept to find equal ones; of many rows, those of a share."""

from __future__ import annotations

import numpy as np

from .checked_rows import Array

MOST_KEPT = 1 << 25
"""Hashes in memory, 256 MB of them; beyond, half of the hashes are let go, again and again."""


class SampleHashes:
    """The hashes of a mapping's rows.

    Equal rows have equal hashes, so the share that is kept has all of its repetitions.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        """Keep at most about so many."""
        self._kept: list[Array] = []
        self._count = 0
        self._most = most
        self.one_of = 1
        """Which share is kept: all, or one of so many."""

    def add(self, hashes: Array) -> None:
        """Take note of rows."""
        chosen = self._chosen(hashes, self.one_of)
        self._kept.append(chosen)
        self._count += len(chosen)
        while self._count > self._most:
            self.one_of *= 2
            self._kept = [self._chosen(kept, self.one_of) for kept in self._kept]
            self._count = sum(map(len, self._kept))

    @staticmethod
    def _chosen(hashes: Array, one_of: int) -> Array:
        if one_of == 1:
            return hashes
        chosen: Array = hashes[(hashes >> np.uint64(40)) % np.uint64(one_of) == 0]
        return chosen

    def sorted(self, one_of: int) -> Array:
        """The hashes of a share that is not larger than what is kept, sorted."""
        kept = self._kept or [np.empty(0, np.uint64)]
        return np.sort(np.concatenate([self._chosen(hashes, one_of) for hashes in kept]))

    def repeated(self) -> tuple[int, int]:
        """How many rows repeat an earlier one, and of how many that were looked at."""
        hashes = self.sorted(self.one_of)
        return int(np.count_nonzero(hashes[1:] == hashes[:-1])), len(hashes)

    def found_in(self, other: SampleHashes) -> tuple[int, int]:
        """How many rows stand in another mapping too, and of how many that were looked at."""
        one_of = max(self.one_of, other.one_of)
        ours, theirs = self.sorted(one_of), other.sorted(one_of)
        if not len(theirs):
            return 0, len(ours)
        places = np.minimum(np.searchsorted(theirs, ours), len(theirs) - 1)
        return int(np.count_nonzero(theirs[places] == ours)), len(ours)
