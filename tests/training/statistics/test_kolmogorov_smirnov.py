from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from merlin_sim.training.statistics.kolmogorov_smirnov import normality, two_samples


@pytest.mark.parametrize(
    ("behind", "statistic", "p"),
    [(6, 0.6, 0.0524), (7, 0.7, 0.0123), (2, 0.2, 0.9945), (4, 0.4, 0.4175)],
)
def test_the_p_values_that_are_published_for_ten_runs_each(behind, statistic, p):
    first = np.arange(10.0)
    found = two_samples(first, first + behind - 0.5)
    assert found.statistic == pytest.approx(statistic)
    assert found.p == pytest.approx(p, abs=5e-5)


@pytest.mark.parametrize("sizes", [(3, 7), (10, 10), (12, 5)])
def test_two_samples_as_scipy_has_them(sizes):
    random = np.random.default_rng(sum(sizes))
    first, second = random.normal(size=sizes[0]), random.normal(0.8, size=sizes[1])
    expected = stats.ks_2samp(first, second, method="exact")
    found = two_samples(first, second)
    assert found == pytest.approx((expected.statistic, expected.pvalue))


def test_equal_samples_are_not_apart():
    assert two_samples([1.0, 2.0], [1.0, 2.0]) == (0.0, 1.0)


def test_the_distance_from_normal_is_that_of_scipy_and_its_p_that_of_lilliefors():
    values = np.random.default_rng(1).exponential(size=10)
    expected = stats.kstest(values, "norm", args=(values.mean(), values.std(ddof=1)))
    assert normality(values).statistic == pytest.approx(expected.statistic)
    # Dallal and Wilkinson (1986) for ten values: 0.262 at 0.05, 0.304 at 0.01.
    for distance, p in ((0.262, 0.05), (0.304, 0.01)):
        found = normality(sample_at(distance))
        assert found.statistic == pytest.approx(distance, abs=1e-6)
        assert found.p == pytest.approx(p, rel=0.15)


def sample_at(distance):
    """Ten values at a distance from their normal: two heaps, more or less apart."""
    normal = stats.norm.ppf((np.arange(10) + 0.5) / 10)
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        values = normal + middle * (np.arange(10) >= 6)
        low, high = (middle, high) if normality(values).statistic < distance else (low, middle)
    return values


def test_few_or_equal_values_say_nothing_of_their_distribution():
    assert normality([1.0, 2.0, 3.0]) is None
    assert normality([0.8] * 10) is None
