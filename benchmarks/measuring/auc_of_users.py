"""AUC, and how much of it hangs on which users were tested."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

Array = npt.NDArray[np.float64]


class AUCOfUsers(NamedTuple):
    """AUC, and each user's influence on it: [users], in the order of their ids."""

    auc: float
    influence: Array

    @classmethod
    def of(cls, users: Array, labels: Array, scores: Array) -> AUCOfUsers:
        """Compute both, exactly; equal scores count half.

        The rows of a user hang together, so the sum of a user's rows is one observation (Obuchowski
        1997): a click's rank among the others, and the other way round, less the AUC.

        >>> AUCOfUsers.of(np.array([1, 1, 2, 2]), np.array([1, 0, 1, 0]), np.array([3, 1, 2, 2]))
        AUCOfUsers(auc=0.875, influence=array([ 0.125, -0.125]))

        Args:
            users: [rows].
            labels: [rows], 1 or 0.
            scores: [rows].
        """
        clicks = labels > 0.5
        scores = np.asarray(scores, np.float64)
        above = np.empty(len(scores))  # the share of the other kind that a row is above
        ranks = rankdata(scores)
        for kind in (clicks, ~clicks):
            above[kind] = (ranks[kind] - rankdata(scores[kind])) / np.count_nonzero(~kind)
        auc = float(above[clicks].mean())
        above = np.where(clicks, above - auc, 1 - auc - above)
        above /= np.where(clicks, np.count_nonzero(clicks), np.count_nonzero(~clicks))
        _, user = np.unique(users, return_inverse=True)
        return cls(auc, np.bincount(user, above))


def standard_error(influence: Array) -> float:
    """Return the standard error of an AUC, or of a difference, by users' influences on it."""
    count = len(influence)
    return float(np.sqrt(np.square(influence).sum() * count / (count - 1)))
