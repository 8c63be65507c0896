"""Measures on test users drawn with replacement: how much of one hangs on who was tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ...foundation.exceptions import MerlinSimError
from ..evaluation.scored_rows import (
    CALIBRATION_BINS,
    THRESHOLDS,
    ScoredRows,
    calibration_bins,
    losses_of,
    threshold_bins,
)

Array = npt.NDArray[Any]
Key = TypeVar("Key")
OfUsers = Callable[[Array], float]
"""Gives a measure's value where each user counts so many times; NaN where it has none."""

DRAWS = 1000
"""Sets of users that are drawn."""


class UserBootstrap:
    """Draws the same sets of test users for every run, so that their AUCs can be paired.

    A set has as many users as there are; all rows of a user come with it, as often as it was drawn.
    The rows are of one of the runs; those of the others must be of the same users.
    """

    def __init__(self, rows: ScoredRows, draws: int = DRAWS, seed: int = 0) -> None:
        self.users, self._rows, self._clicks = _rows_and_clicks(rows)
        self.draws = draws
        self.seed = seed

    def aucs(self, rows: ScoredRows) -> Array:
        """Return the AUC of one run on each set of users, [draws]; NaN where it has none."""
        return self.draw({"auc": self.auc(rows)})["auc"]

    @property
    def once(self) -> Array:
        """How often each user counts in what was measured itself: once."""
        return np.ones(len(self.users))

    def draw(
        self, measures: Mapping[Key, OfUsers], drawn: Callable[[], None] = lambda: None
    ) -> dict[Key, Array]:
        """Compute measures on the same sets of users, [draws] each."""
        values = []
        for times in self._times_drawn():
            values.append([measure(times) for measure in measures.values()])
            drawn()
        return dict(zip(measures, np.array(values).T, strict=True))

    def auc(self, rows: ScoredRows, of: Array | None = None) -> OfUsers:
        """Prepare the AUC of one run, of the rows where ``of`` is true."""
        labels, scores, user = self._chosen(rows, of)
        bins = threshold_bins(labels, scores)
        return lambda times: self._auc(bins, times[user])

    def log_loss(self, rows: ScoredRows, of: Array | None = None) -> OfUsers:
        """Prepare the mean log loss of one run; arguments as of :meth:`auc`."""
        labels, scores, user = self._chosen(rows, of)
        losses = np.bincount(user, losses_of(labels, scores), len(self.users))
        counts = np.bincount(user, minlength=len(self.users)).astype(np.float64)
        return lambda times: _share(float(times @ losses), float(times @ counts))

    def calibration_error(self, rows: ScoredRows, of: Array | None = None) -> OfUsers:
        """Prepare the calibration error of one run; arguments as of :meth:`auc`."""
        labels, scores, user = self._chosen(rows, of)
        bins = calibration_bins(scores)
        above = scores.astype(np.float64) - labels  # summed over a bin, what it predicts too much

        def error(times: Array) -> float:
            weights = times[user]
            apart = np.bincount(bins, weights * above, CALIBRATION_BINS)
            return _share(float(np.abs(apart).sum()), float(weights.sum()))

        return error

    def _chosen(self, rows: ScoredRows, of: Array | None) -> tuple[Array, Array, Array]:
        self._check(rows)
        user = np.searchsorted(self.users, rows.users)
        if of is None:
            return rows.labels, rows.scores, user
        return rows.labels[of], rows.scores[of], user[of]

    def _times_drawn(self) -> Iterator[Array]:
        random = np.random.default_rng(self.seed)
        count = len(self.users)
        for _ in range(self.draws):
            drawn = np.bincount(random.integers(0, count, count), minlength=count)
            yield drawn.astype(np.float64)

    @staticmethod
    def _auc(bins: Array, weights: Array) -> float:
        counts = np.bincount(bins, weights, 2 * (THRESHOLDS - 1)).reshape(2, -1)
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


def _share(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


def _rows_and_clicks(rows: ScoredRows) -> tuple[Array, Array, Array]:
    users, index = np.unique(rows.users, return_inverse=True)
    count = len(users)
    return users, np.bincount(index, minlength=count), np.bincount(index, rows.labels, count)
