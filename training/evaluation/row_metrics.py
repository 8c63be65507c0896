"""Measures of the labels and probabilities of rows, in numpy alone: known without TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

THRESHOLDS = 8000
"""Thresholds of the AUC, as published."""
CALIBRATION_BINS = 20
"""Bins of equal width in which predicted and observed click rates are compared."""
SMALLEST_PROBABILITY = 1e-7
"""Log loss counts probabilities no nearer to 0 and 1 than this, as Keras does."""


def threshold_places(labels: Array, probabilities: Array) -> Array:
    """Return the place of each row among the counts of non-clicks, then of clicks.

    Args:
        labels: [rows], clicks where above 0.5.
        probabilities: [rows].
    """
    place = np.ceil(probabilities.astype(np.float32) * np.float32(THRESHOLDS - 1)) - 1
    between = np.clip(place, 0, THRESHOLDS - 2).astype(np.int64)
    return np.asarray(between + (labels > 0.5) * (THRESHOLDS - 1))


def losses_of(labels: Array, probabilities: Array) -> Array:
    """Return of each row -log of the probability given to what happened."""
    bounded = np.clip(
        probabilities.astype(np.float64), SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY
    )
    losses: Array = -np.log(np.where(labels, bounded, 1 - bounded))
    return losses


def calibration_places(probabilities: Array) -> Array:
    """Return the bin of each row."""
    places = (probabilities * CALIBRATION_BINS).astype(np.int64)
    return np.asarray(np.minimum(places, CALIBRATION_BINS - 1))


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
    clicks, others = probabilities[labels], np.sort(probabilities[~labels])
    if not len(clicks) or not len(others):
        return None
    below = np.searchsorted(others, clicks, "left").sum()
    not_above = np.searchsorted(others, clicks, "right").sum()
    return int(below + not_above) / 2 / (len(clicks) * len(others))
