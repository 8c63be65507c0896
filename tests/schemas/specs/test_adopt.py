"""The published parquet layout, adopted where it stands."""

from __future__ import annotations

import json

import published_layout
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.adopt import adopt, count_rows
from merlin_sim.schemas.channels import BEHAVIOUR
from merlin_sim.schemas.dataset import DatasetDirectory


@pytest.fixture
def directory(tmp_path):
    return published_layout.write(tmp_path / "data")


def replace_column(file, name, values, kind=None):
    table = pq.read_table(file)
    index = table.column_names.index(name)
    pq.write_table(table.set_column(index, name, pa.array(values, kind)), file)


@pytest.mark.slow
@pytest.mark.parametrize("padded", [False, True])
def test_adopt_describes_and_copies_nothing(tmp_path, padded):
    directory = published_layout.write(tmp_path / "data", padded=padded)
    before = {file: file.read_bytes() for file in directory.rglob("*.parquet")}
    rows = []
    metadata = (directory / "metadata.json").read_bytes()
    spec = adopt(directory, 1, on_rows=rows.append)
    assert (directory / "metadata.json").read_bytes() == metadata
    assert sum(rows) == count_rows(directory) == 120
    assert {file: file.read_bytes() for file in directory.rglob("*.parquet")} == before
    assert BEHAVIOUR.problems(spec) == []
    assert spec.feature_spec["item_id_neg"].dimensions == (6,)
    assert spec.feature_spec["cat_id_pos"].cardinality == 7
    assert spec.feature_spec["label"].dtype == "int8"
    assert DatasetDirectory.open(directory).spec == spec


def test_no_user_features(tmp_path):
    directory = published_layout.write(tmp_path / "data")
    for file in directory.rglob("*.parquet"):
        pq.write_table(pq.read_table(file).drop(["user_id"]), file)
    metadata = json.loads((directory / "metadata.json").read_text())
    del metadata["cardinalities"][0]
    (directory / "metadata.json").write_text(json.dumps(metadata))
    assert adopt(directory, 0).channel_spec["user_features"] == ()
    assert BEHAVIOUR.problems(DatasetDirectory.open(directory).spec) == []


@pytest.mark.parametrize("count", [0, 2, -1])
def test_the_wrong_number_of_user_features(directory, count):
    with pytest.raises(MerlinSimError, match=r"Is --number_of_user_features right\?|cardinalities"):
        adopt(directory, count)
    assert not (directory / "feature_spec.yaml").exists()
    adopt(directory, 1)
    with pytest.raises(MerlinSimError, match="the dataset has a spec already"):
        adopt(directory, 1)


def in_row(index, value):
    """The change of a table that puts a value into the first long history of drawn items."""

    def change(table):
        column = table["item_id_neg"].to_pylist()
        next(ids for ids in column if len(ids) > 2)[index] = value
        return table.set_column(6, "item_id_neg", pa.array(column, pa.list_(pa.int64())))

    return change


def with_column(name, values, kind=None):
    index = published_layout.COLUMNS.index(name)
    return lambda table: table.set_column(index, name, pa.array(values, kind))


ALONE = [[1]] * 40
DAMAGES = [
    (with_column("item_id_trgt", [51] * 40), "item_id_trgt.row 1: expected an id from 1 to 50"),
    (with_column("user_id", [1] * 39 + [0]), "user_id.row 40: expected an id from 1 to 9, got 0"),
    (with_column("label", [2] * 40, pa.int8()), "label.row 1: expected 0 or 1, got 2"),
    (with_column("label", [None] + [1] * 39, pa.int8()), "label.row 1: expected a value, got noth"),
    (with_column("user_id", ["x"] * 40), r"user_id: expected ids, got text \(string\)"),
    (with_column("item_id_pos", [3] * 40), "item_id_pos: expected lists of ids, got whole numbers"),
    (with_column("cat_id_neg", ALONE), "expected a list as long as the row's other histories"),
    (with_column("label", ["a"] * 40), "label: expected labels of 0 and 1, got text"),
    (in_row(1, 51), r"item_id_neg.row \d+: expected ids from 0 to 50, got 51"),
    (in_row(1, -1), r"item_id_neg.row \d+: expected ids from 0 to 50, got -1"),
    (in_row(1, None), r"item_id_neg.row \d+: expected ids, got nothing"),
    (in_row(-1, 0), r"item_id_neg.row \d+: expected padding on the left only, got 0 after"),
    (lambda table: table.select(table.column_names[::-1]), "expected the columns label, user_id"),
]


@pytest.mark.parametrize(("change", "message"), DAMAGES)
def test_damage_is_named_with_its_file_and_row(directory, change, message):
    file = directory / "train" / "part.10.parquet"
    pq.write_table(change(pq.read_table(file)), file)
    with pytest.raises(MerlinSimError, match=f"(?s)part.10.parquet.*{message}"):
        adopt(directory, 1)
    assert not (directory / "feature_spec.yaml").exists()


def test_files_that_are_none_of_a_dataset_are_refused(directory):
    test, train = directory / "test/part.0.parquet", directory / "train/part.10.parquet"
    table, content = pq.read_table(test), train.read_bytes()
    pq.write_table(table.slice(0, 0), test)
    with pytest.raises(MerlinSimError, match="test: expected at least one row, got none"):
        adopt(directory, 1)
    pq.write_table(table, test)
    train.write_bytes(content[:300])
    with pytest.raises(MerlinSimError, match="part.10.parquet: expected a parquet file"):
        adopt(directory, 1)
    train.write_bytes(content)
    replace_column(test, "user_id", table["user_id"].combine_chunks().cast(pa.int16()))
    with pytest.raises(MerlinSimError, match=r"user_id: expected whole numbers \(int64\), as in"):
        adopt(directory, 1)
    for number in (2, 10):
        replace_column(directory / f"train/part.{number}.parquet", "user_id", [10] * 40)
    pq.write_table(table, test)
    with pytest.raises(MerlinSimError) as caught:
        adopt(directory, 1)
    assert len(caught.value.problems) == 2  # one of each file
    names = ["user_id", *published_layout.COLUMNS[1:]]  # as another column is called
    for file in directory.rglob("*.parquet"):
        pq.write_table(pq.read_table(file).rename_columns(names), file)
    with pytest.raises(MerlinSimError, match="expected each column name once"):
        adopt(directory, 1)
    test.unlink()
    with pytest.raises(MerlinSimError, match="test: expected parquet files, found none"):
        adopt(directory, 1)
