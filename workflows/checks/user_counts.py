"""Users of a mapping: who has a history, who has positives."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .checked_rows import Array
from .finding import Finding, share_finding


class UserCounts:
    """Counts by user id.

    Args:
        size: How many ids there are, the padding counted; None for no users.
    """

    def __init__(self, size: int | None) -> None:
        """Begin with nothing counted."""
        self._rows = np.zeros(size or 0, np.bool_)
        self._with_history = np.zeros(size or 0, np.bool_)
        self._positives = np.zeros(size or 0, np.int32)

    def add(self, users: Array, labels: Array, lengths: Array) -> None:
        """Take note of rows."""
        self._rows[users] = True
        self._with_history[users[lengths > 0]] = True
        np.add.at(self._positives, users[labels == 1], 1)

    @property
    def users(self) -> int:
        """How many users there are."""
        return int(np.count_nonzero(self._rows))

    def findings(self, mapping: str, bound: float) -> Iterator[Finding]:
        """Say how many lack a history, and how many positives they have."""
        without = int(np.count_nonzero(self._rows & ~self._with_history))
        yield share_finding("users without history", mapping, without, self.users, bound, "users")
        positives = self._positives[self._rows]
        mean = float(positives.mean())
        none = np.count_nonzero(positives == 0) / len(positives)
        says = (
            f"mean {mean:.1f}, median {np.median(positives):.0f}, most {positives.max():,}; "
            f"{none:.2%} of users have none"
        )
        yield Finding("positives per user", mapping, mean, None, False, says)
