from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from merlin_sim.training.reports.difference import difference, normality, two_samples
from merlin_sim.training.reports.run_results import RunResults
from merlin_sim.training.reports.settings import settings_of


@pytest.mark.parametrize(
    ("behind", "statistic", "p"),
    [(6, 0.6, 0.0524), (7, 0.7, 0.0123), (2, 0.2, 0.9945), (4, 0.4, 0.4175)],
)
def test_the_p_values_that_are_published_for_ten_runs_each(behind, statistic, p):
    first = np.arange(10.0)
    found = two_samples(first, first + behind - 0.5)
    assert found.statistic == pytest.approx(statistic)
    assert found.p == pytest.approx(p, abs=5e-5)
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
    # Few or equal values say nothing.
    assert normality([1.0, 2.0, 3.0]) is None
    assert normality([0.8] * 10) is None


def sample_at(distance):
    """Ten values at a distance from their normal: two heaps, more or less apart."""
    normal = stats.norm.ppf((np.arange(10) + 0.5) / 10)
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        values = normal + middle * (np.arange(10) >= 6)
        low, high = (middle, high) if normality(values).statistic < distance else (low, middle)
    return values


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


@pytest.mark.parametrize(
    ("first", "second", "higher_is_better", "verdict"),
    [
        ([0.80, 0.81, 0.82], [0.70, 0.71, 0.72], True, "better"),
        ([0.80, 0.81, 0.82], [0.70, 0.71, 0.72], False, "worse"),
        ([0.80, 0.81, 0.82], [0.70, 0.71, 0.72], None, "differs"),
        ([0.8, 0.81], [0.79, 0.83], True, "noise"),
        ([0.8, 0.8], [0.8, 0.8], True, "noise"),
        ([0.8], [0.7], True, "unknown"),
        ([0.8, 0.8], [0.7, 0.7], True, "unknown"),
    ],
)
def test_verdicts_by_seeds_alone(first, second, higher_is_better, verdict):
    assert difference(first, second).verdict(higher_is_better) == verdict


def test_chance_alone_is_called_noise_in_nineteen_of_twenty_comparisons():
    random = np.random.default_rng(2)
    called = [difference(*random.normal(size=(2, 3))).verdict(True) == "noise" for _ in range(600)]
    assert np.mean(called) == pytest.approx(0.95, abs=0.025)


def result(name, seed, dataset="abc", **options):
    config = {"seed": seed, "results_dir": f"/tmp/{name}", "epochs": 2, **options}
    metadata = {"ranks": 1, "dataset": {"fingerprint": dataset}}
    return RunResults(
        name, Path(name), [], [], {"test_auc": 0.5 + seed / 100}, {}, config, metadata
    )


def test_runs_that_differ_in_their_seed_are_one_setting():
    runs = [
        result("a", 1, lr=0.1),
        result("b", 1, lr=0.2),
        result("c", 2, lr=0.1),
    ]
    settings = settings_of(runs)
    assert [setting.name for setting in settings] == ["lr 0.1", "b"]
    assert settings[0].measured("test_auc") == [0.51, 0.52]
    assert settings[1].values == {"lr": 0.2}


def test_runs_of_other_models_are_other_settings_and_a_resumed_run_is_not():
    runs = [result(name, 1, load_checkpoint_path=f"/m/{name}") for name in ("good", "bad")]
    assert [setting.name for setting in settings_of(runs)] == ["good", "bad"]
    resumed = result("a", 1, load_checkpoint_path="/a", save_checkpoint_path="/a")
    whole = result("b", 2, load_checkpoint_path=None, save_checkpoint_path="/b")
    assert [setting.name for setting in settings_of([resumed, whole])] == ["all runs"]


def test_which_runs_are_compared_with_which():
    (setting,) = settings_of([result("a", 1), result("b", 1), result("c", 2)])
    assert setting.measured("test_auc") == [0.51, 0.52]  # what gave the same again counts once
    assert len(settings_of([result("a", 1), result("b", 1, dataset="def")])) == 2
    runs = [result(name, 1) for name in "ab"]
    for run in runs:
        run.config.clear()  # of which nothing is known stay apart
    assert [setting.name for setting in settings_of(runs)] == ["a", "b"]
