"""Metrics of labels and probabilities of rows, in numpy alone: known without TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

CALIBRATION_BINS = 20
"""Bins of equal width in which predicted and observed click rates are compared."""
SMALLEST_PROBABILITY = 1e-7
"""Log loss counts probabilities no nearer to 0 and 1 than this, as Keras does."""


def losses_of(labels: Array, probabilities: Array) -> Array:
    """Return of each row -log of the probability given to what happened."""
    bounded = np.clip(
        probabilities.astype(np.float64), SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY
    )
    losses: Array = -np.log(np.where(labels, bounded, 1 - bounded))
    return losses


def exact_auc(labels: Array, probabilities: Array) -> float | None:
    """Return the share of pairs of a click and another row that are in order; equal ones half.

    >>> exact_auc(np.array([False, True, True]), np.array([0.2, 0.2, 0.3]))
    0.75
    >>> exact_auc(np.array([True]), np.array([0.2])) is None
    True

    Args:
        labels: [rows], clicks where true.
        probabilities: [rows].
    """
    clicks = int(labels.sum())
    others = len(labels) - clicks
    if not clicks or not others:
        return None
    return pairs_in_order(labels, probabilities) / 2 / (clicks * others)


def pairs_in_order(labels: Array, probabilities: Array) -> int:
    """Count the pairs of a click and another row that are in order twice, equal ones once."""
    clicks, others = np.sort(probabilities[labels]), np.sort(probabilities[~labels])
    below = np.searchsorted(others, clicks, "left")
    not_above = np.searchsorted(others, clicks, "right")
    return int(below.sum() + not_above.sum())


def grouped_auc(labels: Array, probabilities: Array, groups: Array) -> float | None:
    """Return the AUC within groups, weighted by their rows.

    Groups with one kind of label say nothing and do not count. Equal probabilities count half.

    >>> grouped_auc(np.array([0, 1, 0, 1]), np.array([0.1, 0.2, 0.9, 0.3]), np.array([1, 1, 2, 2]))
    0.5
    >>> grouped_auc(np.array([0, 1]), np.array([0.1, 0.2]), np.array([1, 2])) is None
    True

    Args:
        labels: [rows], clicks where true.
        probabilities: [rows].
        groups: [rows], ids, in any order.
    """
    areas, sizes = areas_of_groups(labels, probabilities, groups)
    return float(np.average(areas, weights=sizes)) if len(areas) else None


def areas_of_groups(labels: Array, probabilities: Array, groups: Array) -> tuple[Array, Array]:
    """Return the AUC and the rows of each group that has both kinds of label, by rising group."""
    if not len(labels):
        return np.empty(0), np.empty(0, np.int64)
    order = np.lexsort((probabilities, groups))
    clicks, scores, ids = labels[order].astype(bool), probabilities[order], groups[order]
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    sizes = np.diff(np.append(starts, len(ids)))
    group = np.repeat(np.arange(len(starts)), sizes)
    # Ranks from 1 within the group; rows of the same score share the mean of their ranks.
    ties = np.flatnonzero(
        np.concatenate([[True], (scores[1:] != scores[:-1]) | (ids[1:] != ids[:-1])])
    )
    tie_sizes = np.diff(np.append(ties, len(ids)))
    mean_rank = np.repeat(ties + (tie_sizes + 1) / 2, tie_sizes) - starts[group]
    positives = np.bincount(group, clicks, minlength=len(starts))
    negatives = sizes - positives
    rank_sums = np.bincount(group, clicks * mean_rank, minlength=len(starts))
    both = (positives > 0) & (negatives > 0)
    wins = rank_sums[both] - positives[both] * (positives[both] + 1) / 2
    return wins / (positives[both] * negatives[both]), sizes[both]


def calibration_places(probabilities: Array) -> Array:
    """Return the bin of each row."""
    places = (probabilities * CALIBRATION_BINS).astype(np.int64)
    return np.asarray(np.minimum(places, CALIBRATION_BINS - 1))


def calibration_error(bins: Array) -> float:
    """Return the mean distance of prediction and observation, weighted by rows."""
    if not len(bins):
        return 0.0
    return float(np.average(np.abs(bins[:, 0] - bins[:, 1]), weights=bins[:, 2]))
