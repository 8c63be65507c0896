"""None"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ks_2samp

from merlin_sim.serving.deployment.drift import SeenColumns
from merlin_sim.serving.deployment.drift_findings import (
    DriftBounds,
    bins_of_values,
    by_popularity,
    compare,
    count_bins,
    count_places,
    largest_distance,
    stability_index,
)


def test_the_index_is_the_textbooks():
    reference, new = np.array([1000, 3000, 6000]), np.array([2000, 3000, 5000])
    p, q = reference / 10_000, new / 10_000
    assert stability_index(reference, new) == pytest.approx(
        ((q - p) * np.log(q / p)).sum(), rel=0.01
    )
    assert stability_index(reference, 7 * reference) == pytest.approx(0, abs=1e-6)
    assert np.isfinite(stability_index(np.array([5, 0]), np.array([0, 5])))


def test_the_distance_is_that_of_scipy():
    random = np.random.default_rng(0)
    one, other = random.normal(0, 1, 300).round(1), random.normal(0.3, 1.2, 500).round(1)
    found = largest_distance(*count_places(one, other))
    assert found == pytest.approx(ks_2samp(one, other).statistic)
    assert largest_distance(np.zeros(3), np.ones(3)) == 0


def test_bins_hold_a_tenth_each_or_repeated_values():
    values = np.arange(1000.0)
    assert count_bins(values, bins_of_values(values)).tolist() == [100] * 10
    edges = bins_of_values(np.array([0.0] * 95 + [1.0] * 5))
    assert count_bins(np.array([0.0, 0.0, 1.0, -1.0]), edges).tolist() == [1, 3]


def test_ids_stand_by_popularity_and_rare_ones_with_those_that_are_missing():
    reference = np.array([1, 50, 0, 30, 19])
    order, bins = by_popularity(reference)
    assert order.tolist() == [1, 3, 4, 0, 2]
    assert bins.tolist() == [0, 1, 2, 3, 3]


BOUNDS = DriftBounds(psi=0.25, ks=0.2, unknown=0.1, label_rate=0.05)


def seen(clicks=500, ids=(0, 600, 300, 100), prices=0.0, longer=0) -> SeenColumns:
    random = np.random.default_rng(2)
    return SeenColumns(
        rows=1000,
        clicks=clicks,
        counts={"item": np.array(ids)},
        numbers={"price": (random.normal(prices, 1, 1000)).astype(np.float32)},
        lengths=random.integers(0, 50, 1000) + longer,
    )


def by_feature(new: SeenColumns) -> dict:
    return {found.feature: found for found in compare(seen(), new, BOUNDS)}


def test_each_kind_of_drift_is_told_of_its_feature_alone():
    for new, feature, said in (
        (seen(clicks=600), "label", "clicks 50.0% to 60.0%"),
        (seen(ids=(0, 100, 300, 600)), "item", "KS 0.500"),
        (seen(prices=1.0), "price", "PSI "),
        (seen(longer=30), "history", "KS "),
    ):
        drifted = [finding for finding in by_feature(new).values() if finding.drifted]
        assert [finding.feature for finding in drifted] == [feature]
        assert any(reason.startswith(said) for reason in drifted[0].reasons)
        assert drifted[0].to_dict()["drifted"] is True


def test_means_are_reported():
    found = by_feature(seen(prices=0.5, longer=1))
    assert abs(found["price"].new_mean - found["price"].reference_mean - 0.5) < 1e-5
    assert abs(found["history"].new_mean - found["history"].reference_mean - 1) < 1e-9


def test_a_column_of_one_side_is_not_compared():
    new = seen()
    new.counts["more"] = np.array([0, 5])
    assert set(by_feature(new)) == {"label", "item", "price", "history"}
