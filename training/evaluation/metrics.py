"""AUC, log loss, AUC within users and calibration, the same for any number of ranks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...foundation.ranks import Ranks
from ...ranks.collectives import send_rows, sum_counts
from .over_ranks import (
    calibration_over_ranks,
    exact_auc_over_ranks,
    gauc_over_ranks,
    log_loss_over_ranks,
)
from .row_metrics import calibration_error
from .scored_rows import Places, ScoredRows, refuse_not_a_number
from .thresholds import THRESHOLDS, places

Array = npt.NDArray[Any]
Rows = tuple[Array, Array, Array]
"""Labels, probabilities and users of some rows."""


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
    """The rows of all ranks, where they were to be kept: on the first rank alone."""

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold: all but the rows."""
        values = asdict(replace(self, scored=None))
        values.pop("scored")
        return values


class Evaluator:
    """Collects predictions on this rank, then computes the metrics over all ranks.

    Keeps 13 bytes of each of its rows until :meth:`result`, 37 with its place in the dataset. There
    ranks add up counts and sums, and share out the rows twice: by score, and by user. No rank holds
    those of all, unless rows are kept, which the first rank then does.

    Args:
        ranks: the run.
        keeps_rows: whether the first rank's result has them.
    """

    def __init__(self, ranks: Ranks, keeps_rows: bool = False) -> None:
        """Begin with nothing counted."""
        self._ranks = ranks
        self._keeps_rows = keeps_rows
        self._auc = AUCCounts()
        self._batches: list[Rows] = []
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
        """Compute the metrics; all ranks must ask, and get the same but for the kept rows.

        Raises:
            MerlinSimError: Where scores are NaN.
        """
        empty = (np.empty(0, np.bool_), np.empty(0, np.float32), np.empty(0, np.int64))
        labels, probabilities, users = map(
            np.concatenate, zip(*(self._batches or [empty]), strict=True)
        )
        self._batches = []
        ranks = self._ranks
        counts = np.array([np.isnan(probabilities).sum(), len(probabilities)], np.int64)
        wrong, of = sum_counts(counts, ranks).tolist()
        refuse_not_a_number(wrong, of, "the model's scores")
        bins = calibration_over_ranks(labels, probabilities, ranks)
        auc = self._auc.over_ranks(ranks)
        return Evaluation(
            rows=int(auc.counts.sum()),
            auc=auc.result(),
            exact_auc=exact_auc_over_ranks(labels, probabilities, ranks),
            log_loss=log_loss_over_ranks(labels, probabilities, ranks),
            gauc=gauc_over_ranks(labels, probabilities, users, ranks) if with_users else None,
            calibration_error=calibration_error(bins),
            roc=_thinned(auc),
            calibration=bins.tolist(),
            scored=self._kept(labels, probabilities, users) if self._keeps_rows else None,
        )

    def _kept(self, labels: Array, probabilities: Array, users: Array) -> ScoredRows | None:
        """Bring the rows of all ranks to the first one, in one order for any number of ranks."""
        first = np.zeros(len(labels), np.int64)
        rows: list[Array] = [labels, probabilities, users]
        keeps_places = bool(sum_counts(np.array([len(self._places)]), self._ranks)[0])
        if keeps_places:
            nothing = Places(*(np.empty(0, np.int64) for _ in Places._fields))
            rows += map(np.concatenate, zip(*(self._places or [nothing]), strict=True))
        labels, probabilities, users, *places = (
            send_rows(column, first, self._ranks) for column in rows
        )
        if not self._ranks.is_first:
            return None
        order = np.lexsort((*places, labels, probabilities, users))
        kept = Places(*(column[order] for column in places)) if keeps_places else None
        return ScoredRows(users[order], labels[order], probabilities[order], kept)


def _thinned(auc: AUCCounts) -> list[list[float]]:
    """Keep about 200 points of the ROC curve, evenly spaced along both axes."""
    if auc.result() is None:
        return [[], []]
    false_positive, true_positive = auc.roc()
    place = np.floor((false_positive + true_positive) * 100)
    kept = np.flatnonzero(np.concatenate([[True], place[1:] != place[:-1]]))
    kept = np.union1d(kept, [len(place) - 1])
    return [false_positive[kept].tolist(), true_positive[kept].tolist()]
