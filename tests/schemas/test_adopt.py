"""The published parquet layout, adopted where it stands."""

from __future__ import annotations

import json

import numpy as np
import published_layout
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_sim.schemas.adopt import adopt, count_rows
from merlin_sim.schemas.channels import CONTRACTS
from merlin_sim.schemas.dataset import Dataset
from merlin_sim.schemas.exceptions import MerlinSimError


@pytest.fixture
def directory(tmp_path):
    return published_layout.write(tmp_path / "data")


def replace_column(file, name, values, kind=None):
    table = pq.read_table(file)
    place = table.column_names.index(name)
    pq.write_table(table.set_column(place, name, pa.array(values, kind)), file)


@pytest.mark.parametrize("padded", [False, True])
def test_adopt_describes_and_copies_nothing(tmp_path, padded):
    directory = published_layout.write(tmp_path / "data", padded=padded)
    before = {file: file.read_bytes() for file in directory.rglob("*.parquet")}
    rows = []
    spec = adopt(directory, 1, on_rows=rows.append)
    assert sum(rows) == count_rows(directory) == 120
    assert {file: file.read_bytes() for file in directory.rglob("*.parquet")} == before
    assert CONTRACTS["sim"].problems(spec) == []
    assert spec.feature_spec["item_id_neg"].dimensions == (6,)
    assert spec.feature_spec["cat_id_pos"].cardinality == 7
    assert spec.feature_spec["label"].dtype == "int8"
    assert Dataset.open(directory).spec == spec


def test_no_user_features(tmp_path):
    directory = published_layout.write(tmp_path / "data")
    for file in directory.rglob("*.parquet"):
        pq.write_table(pq.read_table(file).drop(["user_id"]), file)
    metadata = json.loads((directory / "metadata.json").read_text())
    del metadata["cardinalities"][0]
    (directory / "metadata.json").write_text(json.dumps(metadata))
    assert adopt(directory, 0).channel_spec["user_features"] == ()
    assert CONTRACTS["sim"].problems(Dataset.open(directory).spec) == []


@pytest.mark.parametrize("count", [0, 2, 3, -1, 9])
def test_the_wrong_number_of_user_features(directory, count):
    with pytest.raises(MerlinSimError, match=r"Is --number_of_user_features right\?|cardinalities"):
        adopt(directory, count)
    assert not (directory / "feature_spec.yaml").exists()


def ragged(rows, value, kind=None):
    return pa.array([[value]] * rows, kind or pa.list_(pa.int64()))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "item_id_trgt",
            np.full(40, 51),
            "row 0, column 'item_id_trgt': expected an id from 1 to 50",
        ),
        ("user_id", [1] * 39 + [0], "row 39, column 'user_id': expected an id from 1 to 9, got 0"),
        ("label", [0.5] * 40, "column 'label': expected 0 or 1, got 0.5"),
        ("label", [None] + [1] * 39, "row 0, column 'label': expected a value, got null"),
        ("user_id", ["x"] * 40, "column 'user_id': expected ids, got string"),
        ("item_id_pos", [3] * 40, "column 'item_id_pos': expected lists of ids, got int64"),
        ("cat_id_neg", ragged(40, 1), "column 'cat_id_neg': expected a list as long as the row's"),
        ("label", ["a"] * 40, "column 'label': expected labels of 0 and 1, got string"),
    ],
)
def test_damage_is_named_with_its_file_and_row(directory, name, values, message):
    replace_column(directory / "train" / "part.10.parquet", name, values)
    with pytest.raises(MerlinSimError) as caught:
        adopt(directory, 1)
    assert "part.10.parquet" in str(caught.value)
    assert message in str(caught.value)
    assert not (directory / "feature_spec.yaml").exists()


def test_an_id_in_a_history_beyond_its_table(directory):
    file = directory / "test" / "part.0.parquet"
    column = pq.read_table(file)["item_id_neg"].to_pylist()
    row = next(place for place, ids in enumerate(column) if len(ids) > 2)
    column[row][1] = 51
    replace_column(file, "item_id_neg", column, pa.list_(pa.int64()))
    with pytest.raises(
        MerlinSimError, match=f"row {row}, column 'item_id_neg': expected ids from 0 to 50, got 51"
    ):
        adopt(directory, 1)


def test_columns_in_another_order(directory):
    file = directory / "test" / "part.0.parquet"
    table = pq.read_table(file)
    pq.write_table(table.select(list(reversed(table.column_names))), file)
    with pytest.raises(MerlinSimError, match="part.0.parquet: expected the columns label, user_id"):
        adopt(directory, 1)


def test_damaged_and_missing_files(directory):
    file = directory / "train" / "part.10.parquet"
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(MerlinSimError, match="part.10.parquet: expected a parquet file"):
        adopt(directory, 1)
    for file in (directory / "test").iterdir():
        file.unlink()
    with pytest.raises(MerlinSimError, match="test: expected parquet files, found none"):
        adopt(directory, 1)


def test_a_dataset_with_a_spec_is_left_alone(directory):
    adopt(directory, 1)
    with pytest.raises(MerlinSimError, match="the dataset has a spec already"):
        adopt(directory, 1)
