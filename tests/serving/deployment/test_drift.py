"""Of both layouts, the samples that are read are counted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from grown_dataset import write_keyed_dataset
from ranking_rows import write_ranking_dataset
from small_users import samples_of, write_users_dataset

from merlin_sim.foundation.progress import Silence
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.serving.deployment import drift as seen_columns
from merlin_sim.serving.deployment.drift import see_columns


def test_rows_of_users_are_counted_as_the_samples_that_they_make(tmp_path):
    directory = write_users_dataset(tmp_path / "users", [[[3, 9, 4], [2, 12]]])
    dataset = DatasetDirectory.open(directory)
    seen = see_columns(dataset, "train", 10**6, [], Silence())
    expected = samples_of(directory, "train")
    assert seen.rows == len(expected["label"]) and seen.clicks == expected["label"].sum()
    assert set(seen.counts) == {
        "user",
        "country",
        "thing_trgt",
        "kind_trgt",
        "thing_pos",
        "kind_pos",
    }
    for name, counts in seen.counts.items():
        values = expected[name][expected[name] > 0]
        assert np.array_equal(counts, np.bincount(values, minlength=len(counts))), name
    lengths = (expected["thing_pos"] > 0).sum(axis=1)
    assert sorted(seen.lengths) == sorted(lengths)


@pytest.mark.parametrize("rows", [7, 1000])
def test_the_first_rows_of_samples_are_counted(tmp_path, rows):
    dataset = DatasetDirectory.open(write_keyed_dataset(tmp_path / "dataset"))
    seen = see_columns(dataset, "train", rows, ["who"], Silence())
    table = pa.concat_tables([pq.read_table(file) for file in dataset.files("train")])[:rows]
    assert seen.rows == table.num_rows == min(rows, 240)
    assert seen.clicks == sum(table["clicked"].to_pylist())
    assert set(seen.counts) == {"thing", "kind", "thing_seen", "kind_seen"}
    found = np.flatnonzero(seen.counts["thing"])
    assert sorted(found) == sorted(set(table["thing"].to_pylist()))
    assert seen.counts["thing_seen"].sum() == sum(map(len, table["thing_seen"].to_pylist()))
    assert seen.lengths.tolist() == [len(row) for row in table["thing_seen"].to_pylist()]


def test_numbers_are_taken_as_they_are(tmp_path):
    dataset = DatasetDirectory.open(write_ranking_dataset(tmp_path / "dataset", 120))
    seen = see_columns(dataset, "train", 100, [], Silence())
    table = pq.read_table(dataset.files("train")[0]).slice(0, 100)
    assert set(seen.numbers) == {f"number_{place}" for place in range(4)}
    for name, values in seen.numbers.items():
        np.testing.assert_array_equal(values, table[name].to_numpy())
    assert seen.counts["category_1"].sum() == 100 and not len(seen.lengths)


def test_a_vector_counts_by_its_length_and_an_interval_by_itself():
    vectors = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)
    assert seen_columns._plain(vectors, None).tolist() == [5.0, 0.0]
    places = np.array([[False, True], [True, True]])
    assert seen_columns._plain(vectors, places).tolist() == [4.0, 0.0, 0.0]
