"""AUCs on test users drawn with replacement: how much of an AUC hangs on who was tested."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...foundation.exceptions import MerlinSimError
from ..evaluation.scored_rows import ScoredRows
from ..evaluation.thresholds import THRESHOLDS, places

Array = npt.NDArray[Any]

DRAWS = 1000
"""Sets of users that are drawn."""


class UserBootstrap:
    """Draws the same sets of test users for every run, so that their AUCs can be paired.

    A set has as many users as there are; all rows of a user come with it, as often as it was drawn.

    Args:
        rows: of one of the runs; those of the others must be of the same users.
        draws: how many sets.
        seed: of the draws.
    """

    def __init__(self, rows: ScoredRows, draws: int = DRAWS, seed: int = 0) -> None:
        """Note who is drawn from."""
        self.users, self._rows, self._clicks = _rows_and_clicks(rows)
        self.draws = draws
        self.seed = seed

    def aucs(self, rows: ScoredRows) -> Array:
        """Return the AUC of one run on each set of users, [draws]; NaN where it has none.

        Raises:
            MerlinSimError: where the rows are not of the same test data.
        """
        self._check(rows)
        place = places(rows.labels, rows.scores)
        user = np.searchsorted(self.users, rows.users)
        return np.array([self._auc(place, times[user]) for times in self._times_drawn()])

    def _times_drawn(self) -> Any:
        random = np.random.default_rng(self.seed)
        count = len(self.users)
        for _ in range(self.draws):
            drawn = np.bincount(random.integers(0, count, count), minlength=count)
            yield drawn.astype(np.float64)

    @staticmethod
    def _auc(place: Array, weights: Array) -> float:
        counts = np.bincount(place, weights, 2 * (THRESHOLDS - 1)).reshape(2, -1)
        others, clicks = counts
        if not others.any() or not clicks.any():
            return float("nan")
        below = np.cumsum(others) - others / 2  # those at the same threshold count half
        return float(np.dot(clicks, below) / (clicks.sum() * others.sum()))

    def _check(self, rows: ScoredRows) -> None:
        found = _rows_and_clicks(rows)
        users = found[0]
        if not all(map(np.array_equal, found, (self.users, self._rows, self._clicks))):
            raise MerlinSimError(
                "the scores of runs are of other test rows, and cannot be compared user by user: "
                f"{len(users):,} users with {len(rows.users):,} rows instead of "
                f"{len(self.users):,} with {int(self._rows.sum()):,}."
            )


def _rows_and_clicks(rows: ScoredRows) -> tuple[Array, Array, Array]:
    users, place = np.unique(rows.users, return_inverse=True)
    count = len(users)
    return users, np.bincount(place, minlength=count), np.bincount(place, rows.labels, count)
