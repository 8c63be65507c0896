"""Of both layouts, the samples that are read are counted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from grown_dataset import write_keyed_dataset
from small_users import samples_of, write_users_dataset

from merlin_sim.deployment.drift.seen_columns import see_columns
from merlin_sim.foundation.progress import Silence
from merlin_sim.schemas.dataset import DatasetDirectory


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
