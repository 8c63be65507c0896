"""Kolmogorov and Smirnov's tests: are values normal, are two samples of one distribution."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SIMULATED = 50_000
"""Normal samples by which a distance is judged."""
FEWEST = 4
"""Values of a sample that say anything about its distribution."""


class Tested(NamedTuple):
    """What a test says."""

    statistic: float
    """The largest distance of two distribution functions."""
    p: float
    """How often chance alone makes it as large."""


def normality(values: Sequence[float]) -> Tested | None:
    """Compare values with a normal distribution of their own mean and standard deviation.

    Both are estimated from the values, which brings the two nearer to each other; so the distance
    is judged by those of normal samples that were treated alike (Lilliefors 1967).

    Returns:
        None for fewer than 4 values, or equal ones.
    """
    found = np.sort(np.asarray(values, np.float64))
    if len(found) < FEWEST or np.ptp(found) <= 1e-12 * np.abs(found).max():
        return None
    (statistic,) = _distances_from_normal(found[None])
    simulated = _simulated_distances(len(found))
    p = (1 + np.count_nonzero(simulated >= statistic)) / (1 + len(simulated))
    return Tested(float(statistic), float(p))


def two_samples(first: Sequence[float], second: Sequence[float]) -> Tested:
    """Compare two samples; p is exact for values without ties.

    >>> two_samples([1, 2, 3], [4, 5, 6])
    Tested(statistic=1.0, p=0.1)
    """
    a, b = np.sort(first), np.sort(second)
    places = np.concatenate([a, b])
    # Distances in units of 1 / (len(a) len(b)): whole numbers, which compare exactly.
    below_a = np.searchsorted(a, places, "right").astype(object) * len(b)
    below_b = np.searchsorted(b, places, "right").astype(object) * len(a)
    distance = max(abs(below_a - below_b))
    return Tested(distance / (len(a) * len(b)), _share_of_orders(len(a), len(b), distance))


def _share_of_orders(first: int, second: int, distance: int) -> float:
    """Return the share of all orders of two samples in which they come as far apart."""
    near = [0] * (second + 1)  # orders of i of the one and j of the other that never did
    for i in range(first + 1):
        for j in range(second + 1):
            if abs(i * second - j * first) >= distance and distance:
                near[j] = 0
            elif i == j == 0:
                near[j] = 1
            else:
                near[j] = (near[j] if i else 0) + (near[j - 1] if j else 0)
    orders = math.comb(first + second, first)
    return (orders - near[second]) / orders if distance else 1.0


@functools.cache
def _simulated_distances(count: int) -> Array:
    samples = np.random.default_rng(0).standard_normal((SIMULATED, count))
    return _distances_from_normal(np.sort(samples, axis=1))


def _distances_from_normal(samples: Array) -> Array:
    """Return the distance of each sorted sample, [samples, values], from its own normal."""
    from scipy.special import ndtr  # a tenth of a second

    count = samples.shape[1]
    centred = samples - samples.mean(axis=1, keepdims=True)
    scaled = centred / samples.std(axis=1, ddof=1, keepdims=True)
    expected = ndtr(scaled)
    steps = np.arange(1, count + 1) / count
    above = (steps - expected).max(axis=1)
    below = (expected - (steps - 1 / count)).max(axis=1)
    return np.asarray(np.maximum(above, below))
