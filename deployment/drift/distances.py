"""How far two distributions are apart: population stability index, Kolmogorov and Smirnov's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

BINS = 10
"""Into which the reference is cut for the index, each with about a tenth of it."""


def stability_index(reference: Array, new: Array) -> float:
    """Return the population stability index of counts in the same bins.

        sum of (p_new - p_reference) ln(p_new / p_reference)

    Half a count is added to each bin, so that an empty one is not infinitely far.

    >>> stability_index(np.array([5, 5]), np.array([50, 50]))
    0.0
    >>> round(stability_index(np.array([500, 500]), np.array([400, 600])), 3)
    0.04
    """
    p, q = ((counts + 0.5) / (counts.sum() + 0.5 * len(counts)) for counts in (reference, new))
    return float(np.sum((q - p) * np.log(q / p)))


def largest_distance(reference: Array, new: Array) -> float:
    """Return Kolmogorov and Smirnov's distance of counts at the same places, in their order.

    >>> largest_distance(np.array([1, 1, 0]), np.array([0, 1, 1]))
    0.5
    """
    if not reference.sum() or not new.sum():
        return 0.0
    below = (np.cumsum(counts) / counts.sum() for counts in (reference, new))
    return float(np.abs(np.subtract(*below)).max())


def bins_of_values(reference: Array) -> Array:
    """Return the inner edges of bins with about as many values each; fewer where values repeat."""
    return np.asarray(np.unique(np.quantile(reference, np.arange(1, BINS) / BINS)))


def count_bins(values: Array, edges: Array) -> Array:
    """Count values between edges; a value on an edge is above it."""
    return np.bincount(np.searchsorted(edges, values, "right"), minlength=len(edges) + 1)


def count_places(reference: Array, new: Array) -> tuple[Array, Array]:
    """Count the values of both at each different value, in their order."""
    places, where = np.unique(np.concatenate([reference, new]), return_inverse=True)
    parts = where[: len(reference)], where[len(reference) :]
    counts = [np.bincount(part, minlength=len(places)) for part in parts]
    return counts[0], counts[1]


def by_popularity(reference: Array) -> tuple[Array, Array]:
    """Put ids in order by how often the reference has them, and into bins of equal shares.

    Ids that it does not have stand with the rarest: in any sample many rare ids are missing.

    Args:
        reference: The count of each id.

    Returns:
        The ids in their order, and the bin of each place of that order.
    """
    order = np.argsort(-reference, kind="stable")
    counts = reference[order]
    before = np.cumsum(counts) - counts
    bins = np.floor(before / max(1, counts.sum()) * BINS).astype(np.int64)
    return order, np.unique(np.minimum(bins, BINS - 1), return_inverse=True)[1]
