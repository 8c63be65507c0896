"""What an evaluation reports of rows, wherever their scores come from."""

from __future__ import annotations

import numpy as np

from merlin_sim.foundation.ranks import Ranks
from merlin_sim.training.evaluation.evaluate import EvaluationResult, HeldOutMetrics


def evaluation_of(labels, scores, users, batches: int = 1) -> EvaluationResult:
    """Count rows in batches of whatever size, the rows of each user one after another."""
    labels, scores, users = map(np.asarray, (labels, scores, users))
    order = np.argsort(users, kind="stable")
    found = HeldOutMetrics("user", True, ())
    for part in np.array_split(order, batches):
        found.update(labels[part], scores[part].astype(np.float32), {"user": users[part]})
    return found.result(0, Ranks(), None, False)[0]
