from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from merlin_sim.training.reports.difference import difference, normality, two_samples


@pytest.mark.parametrize(
    ("behind", "statistic", "p"),
    [(6, 0.6, 0.0524), (7, 0.7, 0.0123), (2, 0.2, 0.9945), (4, 0.4, 0.4175)],
)
def test_the_p_values_that_are_published_for_ten_runs_each(behind, statistic, p):
    first = np.arange(10.0)
    found = two_samples(first, first + behind - 0.5)
    assert found.statistic == pytest.approx(statistic)
    assert found.p == pytest.approx(p, abs=5e-5)


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


def test_without_users_the_interval_over_seeds_is_welchs():
    random = np.random.default_rng(0)
    first, second = random.normal(size=4), random.normal(1, 3, size=9)
    found = difference(first, second)
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    assert found.over_seeds == pytest.approx((expected.low, expected.high))
    assert found.over_users is None


def test_what_users_change_widens_the_interval_over_seeds():
    drawn = np.random.default_rng(1).normal(0.8, 0.03, (3, 1000))
    flat = np.full((3, 1000), 0.8)
    values = [0.81, 0.80, 0.79]
    narrow, wide = difference(values, values), difference(values, values, drawn, flat)
    assert wide.over_seeds[0] < narrow.over_seeds[0] < 0 < narrow.over_seeds[1]
    low, high = wide.over_users
    assert high - low == pytest.approx(2 * 1.96 * 0.03 / np.sqrt(3), rel=0.1)


def test_one_run_each_is_judged_by_test_users_and_called_neither_better_nor_worse():
    drawn = np.random.default_rng(1).normal(0.8, 0.001, (1, 1000))
    found = difference([0.8], [0.7], drawn, drawn - 0.1 + 1e-4)
    assert found.over_seeds is None and found.distributions is None
    assert found.interval == found.over_users
    assert found.verdict(True) == found.verdict(None) == "beyond users"
    assert difference([0.8], [0.7], drawn, drawn).verdict(True) == "noise"


def test_what_holds_nothing_is_noise_and_what_nobody_knows_unknown():
    assert difference([0.8, 0.81], [0.79, 0.83]).verdict(True) == "noise"
    assert difference([0.8], [0.7]).verdict(True) == "unknown"
    assert difference([0.8, 0.8], [0.8, 0.8]).verdict(True) == "noise"
    assert difference([0.8, 0.8], [0.7, 0.7]).verdict(True) == "unknown"


def test_by_several_seeds_one_is_better():
    found = difference([0.80, 0.81, 0.82], [0.70, 0.71, 0.72])
    assert found.verdict(True) == "better" and found.verdict(False) == "worse"
    assert found.verdict(None) == "differs"


def test_chance_alone_is_called_noise_in_nineteen_of_twenty_comparisons():
    random = np.random.default_rng(2)
    called = [difference(*random.normal(size=(2, 3))).verdict(True) == "noise" for _ in range(600)]
    assert np.mean(called) == pytest.approx(0.95, abs=0.025)
