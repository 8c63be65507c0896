"""The published parquet layout, adopted where it stands."""

from __future__ import annotations

import json

import numpy as np
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
    place = table.column_names.index(name)
    pq.write_table(table.set_column(place, name, pa.array(values, kind)), file)


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


@pytest.mark.parametrize("count", [0, 2, 3, -1, 9])
def test_the_wrong_number_of_user_features(directory, count):
    with pytest.raises(MerlinSimError, match=r"Is --number_of_user_features right\?|cardinalities"):
        adopt(directory, count)
    assert not (directory / "feature_spec.yaml").exists()
    adopt(directory, 1)
    with pytest.raises(MerlinSimError, match="the dataset has a spec already"):
        adopt(directory, 1)


def ragged(rows, value, kind=None):
    return pa.array([[value]] * rows, kind or pa.list_(pa.int64()))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "item_id_trgt",
            np.full(40, 51),
            "item_id_trgt.row 1: expected an id from 1 to 50, got 51",
        ),
        ("user_id", [1] * 39 + [0], "user_id.row 40: expected an id from 1 to 9, got 0"),
        ("label", [2] * 40, "label.row 1: expected 0 or 1, got 2"),
        ("label", [None] + [1] * 39, "label.row 1: expected a value, got nothing"),
        ("user_id", ["x"] * 40, "user_id: expected ids, got text (string)"),
        ("item_id_pos", [3] * 40, "item_id_pos: expected lists of ids, got whole numbers (int64)"),
        ("cat_id_neg", ragged(40, 1), "expected a list as long as the row's other histories"),
        ("label", ["a"] * 40, "label: expected labels of 0 and 1, got text (string)"),
    ],
)
def test_damage_is_named_with_its_file_and_row(directory, name, values, message):
    kind = pa.int8() if name == "label" and not isinstance(values[0], str) else None
    replace_column(directory / "train" / "part.10.parquet", name, values, kind)
    with pytest.raises(MerlinSimError) as caught:
        adopt(directory, 1)
    assert "part.10.parquet" in str(caught.value)
    assert message in str(caught.value)
    assert not (directory / "feature_spec.yaml").exists()


def change_history(file, name, change):
    column = pq.read_table(file)[name].to_pylist()
    row = next(place for place, ids in enumerate(column) if len(ids) > 2)
    change(column[row])
    replace_column(file, name, column, pa.list_(pa.int64()))
    return row


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (1, 51, "expected ids from 0 to 50, got 51"),
        (1, -1, "expected ids from 0 to 50, got -1"),
        (1, None, "expected ids, got nothing"),
        (-1, 0, "expected padding on the left only, got 0 after"),
    ],
)
def test_a_bad_entry_in_a_history(directory, place, value, message):
    file = directory / "test" / "part.0.parquet"
    row = change_history(file, "item_id_neg", lambda ids: ids.__setitem__(place, value))
    with pytest.raises(MerlinSimError, match=f"item_id_neg.row {row + 1}: {message}"):
        adopt(directory, 1)


def test_every_file_and_column_that_is_damaged_is_named(directory):
    for number in (2, 10):
        file = directory / "train" / f"part.{number}.parquet"
        replace_column(file, "user_id", [10] * 40)
        replace_column(file, "cat_id_trgt", [8] * 40)
    with pytest.raises(MerlinSimError) as caught:
        adopt(directory, 1)
    assert len(caught.value.problems) == 4


def give_columns_one_name(directory):
    for file in directory.rglob("*.parquet"):
        table = pq.read_table(file)
        names = ["user_id" if name == "label" else name for name in table.column_names]
        pq.write_table(table.rename_columns(names), file)


def change_test(change):
    def make(directory):
        file = directory / "test" / "part.0.parquet"
        pq.write_table(change(pq.read_table(file)), file)

    return make


def cut_off(directory):
    file = directory / "train" / "part.10.parquet"
    file.write_bytes(file.read_bytes()[:300])


DAMAGES = {
    "columns of one name": (give_columns_one_name, "expected each column name once"),
    "no rows": (change_test(lambda t: t.slice(0, 0)), "test: expected at least one row, got none"),
    "another order": (
        change_test(lambda t: t.select(t.column_names[::-1])),
        "part.0.parquet: expected the columns label, user_id",
    ),
    "another type": (
        change_test(lambda t: t.set_column(1, "user_id", t["user_id"].cast(pa.int16()))),
        r"user_id: expected whole numbers \(int64\), as in",
    ),
    "cut off": (cut_off, "part.10.parquet: expected a parquet file"),
    "no files": (
        lambda directory: (directory / "test/part.0.parquet").unlink(),
        "test: expected parquet files, found none",
    ),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_files_that_are_none_of_a_dataset_are_refused(directory, damage, message):
    damage(directory)
    with pytest.raises(MerlinSimError, match=message):
        adopt(directory, 1)
