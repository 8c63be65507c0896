"""What a day's rows are counted as, and what of two days is said to have drifted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from grown_dataset import write_keyed_dataset
from ranking_rows import write_ranking_dataset
from scipy.stats import ks_2samp
from small_users import samples_of, write_users_dataset

from merlin_sim.foundation.progress import Silence
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.feature_spec import Feature, FeatureSpec
from merlin_sim.schemas.known_keys import note_of
from merlin_sim.schemas.merlin_schema import to_merlin_schema
from merlin_sim.serving.deployment.drift import (
    SeenColumns,
    one_number_each,
    see_columns,
    see_requests,
)
from merlin_sim.serving.deployment.drift_findings import (
    DriftBounds,
    bins_of_values,
    by_popularity,
    compare,
    count_bins,
    count_distinct,
    largest_distance,
    stability_index,
)
from merlin_sim.serving.encoder import EncodedEvent
from merlin_sim.serving.request_log import RequestLog
from merlin_sim.serving.settings import LogSettings


def test_rows_of_users_are_counted_as_the_samples_that_they_make(tmp_path):
    directory = write_users_dataset(tmp_path / "users", [[[3, 9, 4], [2, 12]]])
    seen = see_columns(DatasetDirectory.open(directory), "train", 10**6, [], Silence())
    expected = samples_of(directory, "train")
    assert seen.rows == len(expected["label"]) and seen.clicks == expected["label"].sum()
    assert {*seen.counts} == {"user", "country", "thing_trgt", "kind_trgt", "thing_pos", "kind_pos"}
    for name, counts in seen.counts.items():
        values = expected[name][expected[name] > 0]
        assert np.array_equal(counts, np.bincount(values, minlength=len(counts))), name
    assert sorted(seen.lengths) == sorted((expected["thing_pos"] > 0).sum(axis=1))


def test_the_first_rows_of_samples_are_counted(tmp_path):
    dataset = DatasetDirectory.open(write_keyed_dataset(tmp_path / "dataset"))
    seen = see_columns(dataset, "train", 7, ["who"], Silence())
    table = pa.concat_tables([pq.read_table(file) for file in dataset.files("train")])[:7]
    assert seen.rows == table.num_rows == 7
    assert seen.clicks == sum(table["clicked"].to_pylist())
    assert set(seen.counts) == {"thing", "kind", "thing_seen", "kind_seen"}
    assert np.flatnonzero(seen.counts["thing"]).tolist() == sorted({*table["thing"].to_pylist()})
    histories = table["thing_seen"].to_pylist()
    assert seen.counts["thing_seen"].sum() == sum(map(len, histories))
    assert seen.lengths.tolist() == [len(row) for row in histories]


def test_numbers_are_taken_as_they_are_and_a_vector_by_its_length(tmp_path):
    dataset = DatasetDirectory.open(write_ranking_dataset(tmp_path / "dataset", 120))
    seen = see_columns(dataset, "train", 100, [], Silence())
    table = pq.read_table(dataset.files("train")[0]).slice(0, 100)
    assert set(seen.numbers) == {f"number_{index}" for index in range(4)}
    for name, values in seen.numbers.items():
        np.testing.assert_array_equal(values, table[name].to_numpy())
    assert seen.counts["category_1"].sum() == 100 and not len(seen.lengths)
    vectors = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)
    assert one_number_each(vectors, None).tolist() == [5.0, 0.0]
    mask = np.array([[False, True], [True, True]])
    assert one_number_each(vectors, mask).tolist() == [4.0, 0.0, 0.0]


def test_the_measures_are_those_of_the_textbook_and_of_scipy():
    reference, new = np.array([1000, 3000, 6000]), np.array([2000, 3000, 5000])
    p, q = reference / 10_000, new / 10_000
    index = ((q - p) * np.log(q / p)).sum()
    assert stability_index(reference, new) == pytest.approx(index, rel=0.01)
    assert stability_index(reference, 7 * reference) == pytest.approx(0, abs=1e-6)
    assert np.isfinite(stability_index(np.array([5, 0]), np.array([0, 5])))
    random = np.random.default_rng(0)
    one, other = random.normal(0, 1, 300).round(1), random.normal(0.3, 1.2, 500).round(1)
    found = largest_distance(*count_distinct(one, other))
    assert found == pytest.approx(ks_2samp(one, other).statistic)
    assert largest_distance(np.zeros(3), np.ones(3)) == 0


def test_bins_hold_a_tenth_each_or_repeated_values_and_ids_stand_by_popularity():
    values = np.arange(1000.0)
    assert count_bins(values, bins_of_values(values)).tolist() == [100] * 10
    edges = bins_of_values(np.array([0.0] * 95 + [1.0] * 5))
    assert count_bins(np.array([0.0, 0.0, 1.0, -1.0]), edges).tolist() == [1, 3]
    order, bins = by_popularity(np.array([1, 50, 0, 30, 19]))
    assert order.tolist() == [1, 3, 4, 0, 2]
    assert bins.tolist() == [0, 1, 2, 3, 3]  # rare ones with those that are missing


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


@pytest.mark.parametrize(
    ("change", "feature", "said"),
    [
        ({"clicks": 600}, "label", "clicks 50.0% to 60.0%"),
        ({"ids": (0, 100, 300, 600)}, "item", "KS 0.500"),
        ({"prices": 1.0}, "price", "PSI "),
        ({"longer": 30}, "history", "KS "),
    ],
)
def test_each_kind_of_drift_is_reported_of_its_feature_alone(change, feature, said):
    found = by_feature(seen(**change))
    (drifted,) = [finding for finding in found.values() if finding.drifted]
    assert drifted.feature == feature and drifted.to_dict()["drifted"] is True
    assert any(reason.startswith(said) for reason in drifted.reasons)


def test_means_are_reported_and_a_column_of_one_side_is_not_compared():
    new = seen(prices=0.5, longer=1)
    new.counts["more"] = np.array([0, 5])
    found = by_feature(new)
    assert set(found) == {"label", "item", "price", "history"}
    assert abs(found["price"].new_mean - found["price"].reference_mean - 0.5) < 1e-5
    assert abs(found["history"].new_mean - found["history"].reference_mean - 1) < 1e-9
    new.numbers["price"] = np.zeros(0, np.float32)  # of intervals, where no history was sent
    found = by_feature(new)
    assert set(found) == {"label", "item", "history"} and "price" not in new.columns


def test_logged_lists_of_keys_are_counted_key_by_key_and_vectors_by_their_lengths(tmp_path):
    features = {
        "click": Feature("int8"),
        "book": Feature("int64", 9),
        "read": Feature("int64", 9, (4,)),
        "skipped": Feature("int64", 9, (4,)),
        "genres": Feature("int64", 7, (3,)),
        "cover": Feature("float32", None, (2,)),
    }
    channels = {
        "label": ("click",),
        "target_item_features": ("book",),
        "positive_history": ("read",),
        "negative_history": ("skipped",),
        "target_item_lists": ("genres",),
        "target_item_numerical": ("cover",),
    }
    spec = FeatureSpec(features, {}, channels)
    reference = DatasetDirectory(tmp_path / "none", spec, to_merlin_schema(spec))
    log = RequestLog(LogSettings(tmp_path, log_share=1.0), 7, note_of(reference))
    targets = {
        "book": np.array([4, 0]),
        "genres": np.array([[3, 4, 0], [6, 0, 0]]),
        "cover": np.float32([[3, 4], [0, 0]]),
    }
    log.add([EncodedEvent({}, targets, {"read": np.array([8, 8])})], [np.float32([0.1, 0.9])])
    log.close()
    found = see_requests(reference, tmp_path, 9, [], Silence()).columns
    assert found.counts["book"].tolist() == [1, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    assert found.counts["genres"].tolist() == [0, 0, 0, 1, 1, 0, 1, 0]
    assert found.counts["read"].tolist() == [0] * 8 + [2, 0]
    assert found.numbers["cover"].tolist() == [5, 0]
