"""Metrics of the rows of all ranks, of which each rank looks at a share.

Counts and sums are added up, exactly, so that they are the same for any number of ranks. What needs
an order needs rows side by side: of near scores for the exact AUC, of one user for the AUC within
users. Each row goes to the rank that looks at its scores, or at its user.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ...foundation.ranks import Ranks
from ...ranks.collectives import gather_objects, send_rows, sum_counts
from .exact_sum import LIMBS, sums_by, total_of
from .row_metrics import (
    CALIBRATION_BINS,
    areas_of_groups,
    calibration_places,
    losses_of,
    pairs_in_order,
)

Array = npt.NDArray[Any]

BLOCK_ROWS = 1 << 20
"""Rows whose sums are computed in one go."""
SAMPLES_OF_RANK = 256
"""Scores by which a rank's share of the rows is found: shares are equal to about so many parts."""


def log_loss_over_ranks(labels: Array, probabilities: Array, ranks: Ranks) -> float:
    """Return the mean over all ranks of -log of the probability given to what happened."""
    sums = np.zeros((LIMBS, 1), np.int64)
    for rows in _blocks(len(labels)):
        losses = losses_of(labels[rows], probabilities[rows])
        sums += sums_by(np.zeros(len(losses), np.int64), losses, 1)
    total = total_of(sum_counts(sums, ranks)[:, 0])
    rows_of_all = int(sum_counts(np.array([len(labels)]), ranks)[0])
    return float(total / rows_of_all) if rows_of_all else 0.0


def calibration_over_ranks(labels: Array, probabilities: Array, ranks: Ranks) -> Array:
    """Return [mean prediction, observed click rate, rows] of each bin that has rows."""
    counts = np.zeros((2, CALIBRATION_BINS), np.int64)  # [rows, clicks]
    sums = np.zeros((LIMBS, CALIBRATION_BINS), np.int64)
    for rows in _blocks(len(labels)):
        places = calibration_places(probabilities[rows])
        clicked = places[labels[rows]]
        counts += np.stack([np.bincount(p, minlength=CALIBRATION_BINS) for p in (places, clicked)])
        sums += sums_by(places, probabilities[rows], CALIBRATION_BINS)
    counts, sums = sum_counts(counts, ranks), sum_counts(sums, ranks)
    bins = [
        [float(total_of(sums[:, place]) / int(rows)), int(clicks) / int(rows), int(rows)]
        for place, (rows, clicks) in enumerate(counts.T)
        if rows
    ]
    return np.array(bins, np.float64).reshape(-1, 3)


def exact_auc_over_ranks(labels: Array, probabilities: Array, ranks: Ranks) -> float | None:
    """Return the share of pairs of a click and another row that are in order; equal ones half."""
    receivers = _by_score(probabilities, ranks)
    labels, probabilities = (
        send_rows(column, receivers, ranks) for column in (labels, probabilities)
    )
    counts = np.zeros((2, ranks.size), np.int64)  # [clicks or others, rank]: of lower scores first
    counts[:, ranks.rank] = labels.sum(), (~labels).sum()
    counts = sum_counts(counts, ranks)
    clicks, others = (int(number) for number in counts.sum(axis=1))
    below = int(counts[1, : ranks.rank].sum()) * int(counts[0, ranks.rank])
    in_order = pairs_in_order(labels, probabilities) + 2 * below
    total = int(sum_counts(np.array([in_order]), ranks)[0])
    return total / 2 / (clicks * others) if clicks and others else None


def gauc_over_ranks(
    labels: Array, probabilities: Array, users: Array, ranks: Ranks
) -> float | None:
    """Return the AUC within users, weighted by their rows; see :func:`.row_metrics.grouped_auc`."""
    receivers = _by_user(users, ranks)
    labels, probabilities, users = (
        send_rows(column, receivers, ranks) for column in (labels, probabilities, users)
    )
    areas, sizes = areas_of_groups(labels, probabilities, users)
    sums = sums_by(np.zeros(len(areas), np.int64), areas * sizes, 1)
    total = total_of(sum_counts(sums, ranks)[:, 0])
    rows = int(sum_counts(np.array([int(sizes.sum())]), ranks)[0])
    return float(total / rows) if rows else None


def _by_score(probabilities: Array, ranks: Ranks) -> npt.NDArray[np.int64]:
    """Give each row the rank that looks at its score: about as many rows each, equal ones together.

    Every so-manieth score of each rank tells where the shares lie.
    """
    rows = int(sum_counts(np.array([len(probabilities)]), ranks)[0])
    every = max(1, rows // (SAMPLES_OF_RANK * ranks.size))
    samples = gather_objects(np.sort(probabilities)[::every], ranks)
    ordered = np.sort(np.concatenate(samples))
    places = np.arange(1, ranks.size) * len(ordered) // ranks.size
    bounds = ordered[places] if len(ordered) else np.empty(0, np.float32)
    return np.searchsorted(bounds, probabilities, "right").astype(np.int64)


def _by_user(users: Array, ranks: Ranks) -> npt.NDArray[np.int64]:
    """Give each row the rank that looks at its user, whatever pattern their ids have."""
    mixed = users.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
    return (mixed % np.uint64(ranks.size)).astype(np.int64)


def _blocks(rows: int) -> Iterator[slice]:
    return (slice(begin, begin + BLOCK_ROWS) for begin in range(0, rows, BLOCK_ROWS))
