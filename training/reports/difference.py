"""The difference of two settings, and how much of it can be chance."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SIMULATED = 50_000
"""Normal samples by which a distance is judged."""
FEWEST = 4
"""Values of a sample that say anything about its distribution."""


class Tested(NamedTuple):
    """Result of a significance test."""

    statistic: float
    """The largest distance of two distribution functions."""
    p: float
    """How often chance alone makes it as large."""


def normality(values: Sequence[float]) -> Tested | None:
    """Compare values with a normal distribution of their own mean and standard deviation.

    Both are estimated from the values, which brings the two nearer to each other; so the distance
    is judged by those of normal samples that were treated alike (Lilliefors 1967). None for fewer
    than 4 values, or equal ones.
    """
    from scipy.stats import kstest  # half a second

    found = np.asarray(values, np.float64)
    if len(found) < FEWEST or np.ptp(found) <= 1e-12 * np.abs(found).max():
        return None
    statistic = kstest(found, "norm", args=(found.mean(), found.std(ddof=1))).statistic
    simulated = _simulated_distances(len(found))
    p = (1 + np.count_nonzero(simulated >= statistic)) / (1 + len(simulated))
    return Tested(float(statistic), float(p))


def two_samples(first: Sequence[float], second: Sequence[float]) -> Tested:
    """Compare two samples; p is exact for values without ties.

    >>> found = two_samples([1, 2, 3], [4, 5, 6])
    >>> found.statistic, round(found.p, 6)
    (1.0, 0.1)
    """
    from scipy.stats import ks_2samp  # half a second

    found = ks_2samp(first, second, method="exact")
    return Tested(float(found.statistic), float(found.pvalue))


@functools.cache
def _simulated_distances(count: int) -> Array:
    from scipy.stats import goodness_of_fit, norm  # half a second

    simulated = goodness_of_fit(
        norm,
        np.arange(count),
        statistic="ks",
        n_mc_samples=SIMULATED,
        random_state=np.random.default_rng(0),
    )
    return np.asarray(simulated.null_distribution)


CONFIDENCE = 0.95
NOISE, BETTER, WORSE, UNKNOWN, OTHER = "noise", "better", "worse", "unknown", "differs"
BEYOND_USERS = "beyond users"
"""More than other test users would change; of single runs the spread over seeds is unknown."""


@dataclass(frozen=True)
class Difference:
    """Difference of a setting's mean from the reference's, with intervals of 95%."""

    mean: float
    over_users: tuple[float, float] | None
    """By bootstrap over test users; None where no scores were kept."""
    over_seeds: tuple[float, float] | None
    """Over seeds too; None where a setting has one run only, or nothing varies."""
    distributions: Tested | None
    """Whether the values of both can be of one distribution; None of single values."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """The one that takes most into account; None where nothing is known."""
        return self.over_seeds or self.over_users

    def verdict(self, more_is_better: bool | None) -> str:
        """Say in a word what to make of it."""
        if self.interval is None:
            return UNKNOWN
        low, high = self.interval
        if low <= 0 <= high:
            return NOISE
        if self.over_seeds is None:
            return BEYOND_USERS
        if more_is_better is None:
            return OTHER
        return BETTER if (low > 0) == more_is_better else WORSE


def difference(
    values: Sequence[float],
    reference: Sequence[float],
    drawn: Array | None = None,
    drawn_of_reference: Array | None = None,
) -> Difference:
    """Compare what the runs of two settings measured.

    The interval over seeds takes runs for draws from a normal distribution of runs (Welch 1947),
    whose variance is added to that of the test users: these are drawn independently of the seeds.

    Args:
        values: one a run.
        reference: one a run.
        drawn: [runs, draws], the same on sets of test users drawn with replacement, in the same
            order for both.
        drawn_of_reference: the same of the reference.
    """
    mean = float(np.mean(values) - np.mean(reference))
    several = len(values) > 1 and len(reference) > 1
    over_users, variance = None, 0.0
    if drawn is not None and drawn_of_reference is not None:
        differences = drawn.mean(axis=0) - drawn_of_reference.mean(axis=0)
        differences = differences[np.isfinite(differences)]
        if len(differences):
            outside = 100 * (1 - CONFIDENCE) / 2
            low, high = np.percentile(differences, [outside, 100 - outside])
            over_users, variance = (float(low), float(high)), float(differences.var(ddof=1))
    return Difference(
        mean=mean,
        over_users=over_users,
        over_seeds=_over_seeds(mean, variance, values, reference) if several else None,
        distributions=two_samples(values, reference) if several else None,
    )


def _over_seeds(
    mean: float, variance_of_users: float, values: Sequence[float], reference: Sequence[float]
) -> tuple[float, float] | None:
    from scipy.special import stdtrit  # a tenth of a second

    parts = [float(np.var(side, ddof=1)) / len(side) for side in (values, reference)]
    variance = variance_of_users + sum(parts)
    if variance == 0:  # seeds that change nothing say nothing of others
        return None if mean else (mean, mean)
    uncertainty = sum(
        part**2 / (len(side) - 1) for part, side in zip(parts, (values, reference), strict=True)
    )
    freedom = variance**2 / uncertainty if uncertainty else math.inf
    # What 97.5% of Student's distribution lie below.
    half = float(stdtrit(min(freedom, 1e6), (1 + CONFIDENCE) / 2)) * math.sqrt(variance)
    return mean - half, mean + half
