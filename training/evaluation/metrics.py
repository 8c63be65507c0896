"""AUC, log loss, AUC within users and calibration, the same for any number of ranks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...foundation.ranks import Ranks
from ...ranks.collectives import gather_rows, sum_counts
from .row_metrics import (
    calibration_bins,
    calibration_error,
    exact_auc,
    grouped_auc,
    log_loss,
)
from .scored_rows import Places, ScoredRows, check_scores
from .thresholds import THRESHOLDS, places

Array = npt.NDArray[Any]


class AUCCounts:
    """Counts clicks and non-clicks between thresholds; whole numbers, so ranks add up exactly.

    The thresholds and the rule between them are those of ``tf.keras.metrics.AUC(8000)``: evenly
    spaced over 0 to 1, trapezoids under the ROC curve.
    """

    def __init__(self) -> None:
        """Begin with nothing counted."""
        self.counts = np.zeros((2, THRESHOLDS - 1), np.int64)  # [label, between thresholds]

    def update(self, labels: Array, probabilities: Array) -> None:
        """Count one batch; both arguments have one dimension."""
        place = places(labels, probabilities)
        self.counts += np.bincount(place, minlength=self.counts.size).reshape(self.counts.shape)

    def over_ranks(self, ranks: Ranks) -> AUCCounts:
        """Add up the counts of all ranks."""
        total = AUCCounts()
        total.counts = sum_counts(self.counts, ranks)
        return total

    def roc(self) -> tuple[Array, Array]:
        """Return false and true positive rates by falling threshold, both from 0 to 1."""
        rates = [np.concatenate([[0], np.cumsum(row[::-1])]) for row in self.counts]
        with np.errstate(invalid="ignore"):
            return rates[0] / rates[0][-1], rates[1] / rates[1][-1]

    def result(self) -> float | None:
        """Return the AUC; None where there are only clicks or only non-clicks."""
        if not self.counts.sum(axis=1).all():
            return None
        false_positive, true_positive = self.roc()
        return float(np.trapz(true_positive, false_positive))


@dataclass(frozen=True)
class Evaluation:
    """What is known of a model after one pass over the test data."""

    rows: int
    auc: float | None
    """By 8,000 thresholds, as published."""
    exact_auc: float | None
    """By every score: the share of pairs of a click and another row that are in order."""
    log_loss: float
    gauc: float | None
    """AUC within users, weighted by their rows; None without users who have both labels."""
    calibration_error: float
    """Mean distance of predicted and observed click rate over bins, weighted by rows."""
    roc: list[list[float]]
    """[false positive rates, true positive rates], thinned for drawing."""
    calibration: list[list[float]]
    """[mean prediction, observed click rate, rows] of each bin that has rows."""
    scored: ScoredRows | None = None
    """The rows of all ranks, where they were to be kept."""

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold: all but the rows."""
        values = asdict(replace(self, scored=None))
        values.pop("scored")
        return values


class Evaluator:
    """Collects predictions on this rank, then computes the metrics over all ranks.

    Keeps 13 bytes of a row until :meth:`result`, 37 with its place in the dataset. There every rank
    holds those of all ranks.

    Args:
        ranks: the run.
        keeps_rows: whether the result has them.
    """

    def __init__(self, ranks: Ranks, keeps_rows: bool = False) -> None:
        """Begin with nothing counted."""
        self._ranks = ranks
        self._keeps_rows = keeps_rows
        self._auc = AUCCounts()
        self._batches: list[tuple[Array, Array, Array]] = []
        self._places: list[Places] = []

    def update(self, labels: Array, probabilities: Array, users: Array | None) -> None:
        """Take one batch of this rank; ``users`` are ids by which GAUC groups."""
        if not len(labels):
            return
        known = ~np.isnan(probabilities)  # :meth:`result` refuses the others, on all ranks alike
        self._auc.update(labels[known], probabilities[known])
        ids = np.zeros(len(labels), np.int64) if users is None else users.astype(np.int64)
        self._batches.append((labels > 0.5, probabilities.astype(np.float32), ids))

    def keep_places(self, places: Places) -> None:
        """Take where the samples of the batch stand that was taken last."""
        self._places.append(places)

    def result(self, with_users: bool = True) -> Evaluation:
        """Compute the metrics; all ranks must ask, and get the same.

        Raises:
            MerlinSimError: Where scores are NaN.
        """
        empty: tuple[Array, Array, Array] = (
            np.empty(0, np.bool_),
            np.empty(0, np.float32),
            np.empty(0, np.int64),
        )
        columns = zip(*(self._batches or [empty]), strict=True)
        labels, probabilities, users = (
            gather_rows(np.concatenate(column), self._ranks) for column in columns
        )
        check_scores(probabilities, "the model's scores")
        # One order for any number of ranks, so that sums of floats come out the same.
        order = np.lexsort((labels, probabilities, users))
        labels, probabilities, users = labels[order], probabilities[order], users[order]
        auc = self._auc.over_ranks(self._ranks)
        bins = calibration_bins(labels, probabilities)
        return Evaluation(
            rows=len(labels),
            auc=auc.result(),
            exact_auc=exact_auc(labels, probabilities),
            log_loss=log_loss(labels, probabilities),
            gauc=grouped_auc(labels, probabilities, users) if with_users else None,
            calibration_error=calibration_error(bins),
            roc=_thinned(auc),
            calibration=bins.tolist(),
            scored=self._scored(users, labels, probabilities, order) if self._keeps_rows else None,
        )

    def _scored(
        self, users: Array, labels: Array, probabilities: Array, order: Array
    ) -> ScoredRows:
        """Keep the rows of all ranks, with their places in the same order."""
        nothing = [np.empty(0, np.int64)]
        columns = zip(*self._places, strict=True) if self._places else [nothing] * 3
        gathered = [gather_rows(np.concatenate(column), self._ranks) for column in columns]
        places = Places(*(column[order] for column in gathered)) if len(gathered[0]) else None
        return ScoredRows(users, labels, probabilities, places)


def _thinned(auc: AUCCounts) -> list[list[float]]:
    """Keep about 200 points of the ROC curve, evenly spaced along both axes."""
    if auc.result() is None:
        return [[], []]
    false_positive, true_positive = auc.roc()
    place = np.floor((false_positive + true_positive) * 100)
    kept = np.flatnonzero(np.concatenate([[True], place[1:] != place[:-1]]))
    kept = np.union1d(kept, [len(place) - 1])
    return [false_positive[kept].tolist(), true_positive[kept].tolist()]
