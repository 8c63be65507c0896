"""What the order of a log's rows tells of them, where their times do not."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..checks.feature_counts import auc_of_counts
from ..engine.backend import order_of_rows

RANKS = 16
"""Into so many shares of its group the rank of a row is put."""
LEAST_ROWS = 100
"""Fewer rows tell nothing."""
SORTED_SHARE = 0.65
"""From this share of rising pairs on, or from its complement down, rows count as sorted."""
TELLING_AUC = 0.6
"""From this AUC on, or from its complement down, the rank of a row tells its label."""

Codes = npt.NDArray[np.int64]


@dataclass
class FileOrder:
    """Counts, of rows that have one user and one time, in the order of the file."""

    same_time: int = 0
    """Rows that have the user and the time of an earlier row."""
    pairs: int = 0
    """Neighbouring rows of different items."""
    rising: int = 0
    """Those of them whose second item has the greater key."""
    ranks: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((RANKS, 2), np.int64))
    """[ranks, 2] By a row's rank among the rows of its time and by its label, how many."""

    @classmethod
    def of(cls, users: Codes, times: Codes, items: Codes, labels: Codes | None) -> FileOrder:
        """Count some rows, which hold all rows of their users.

        >>> users, times = np.array([1, 1, 1, 1]), np.array([5, 5, 5, 6])
        >>> found = FileOrder.of(users, times, np.array([3, 4, 9, 1]), np.array([1, 0, 0, 1]))
        >>> found.same_time, found.pairs, found.rising, found.auc_of_rank()
        (2, 2, 2, 0.0)

        Args:
            users: [rows] Codes of users.
            times: [rows] Codes of times.
            items: [rows] Items, numbered in the order of their keys.
            labels: [rows] 0 and 1, where the log has labels.
        """
        order = order_of_rows([users, times])
        same = (np.diff(users[order]) == 0) & (np.diff(times[order]) == 0)
        steps = np.diff(items[order])[same]
        found = cls(int(same.sum()), int((steps != 0).sum()), int((steps > 0).sum()))
        if labels is not None and len(order):
            begins = np.flatnonzero(np.concatenate([[True], ~same]))
            sizes = np.diff(np.append(begins, len(order)))
            rank = np.arange(len(order)) - np.repeat(begins, sizes)
            of = np.repeat(sizes, sizes)
            several = of > 1
            share = (rank[several] * RANKS) // of[several]
            np.add.at(found.ranks, (share, labels[order][several]), 1)
        return found

    def add(self, other: FileOrder) -> None:
        """Add the counts of other users."""
        self.same_time += other.same_time
        self.pairs += other.pairs
        self.rising += other.rising
        self.ranks += other.ranks

    def auc_of_rank(self) -> float | None:
        """How well a row's rank among the rows of its time tells label 1 from 0."""
        return auc_of_counts(np.arange(RANKS, dtype=np.float64), self.ranks)

    def lines(self, order_counts: bool) -> list[str]:
        """Say what the order of the file tells.

        Args:
            order_counts: Whether samples see the order of the file.
        """
        found = []
        share = self.rising / max(1, self.pairs)
        if self.pairs >= LEAST_ROWS and not 1 - SORTED_SHARE < share < SORTED_SHARE:
            found.append(
                f"the item's key rises in {share:.1%} of the {self.pairs:,} pairs of neighbouring "
                "rows that have one user and one time: the file is sorted by it"
            )
        auc = self.auc_of_rank()
        if self.ranks.sum() >= LEAST_ROWS and auc is not None:
            if not 1 - TELLING_AUC < auc < TELLING_AUC:
                found.append(
                    f"the rank of a row in the file, among the rows of its user and time, tells "
                    f"its label (AUC {auc:.3f})"
                )
        if not found:
            return []
        if order_counts:
            advice = (
                "WARNING: models learn this order in place of behaviour. Leave out "
                "`--order_of_equal_times log`, or give `hash`"
            )
        else:
            advice = "no sample sees this order: a hash orders rows of one time"
        return [*found, advice]
