"""A dataset directory, opened: what it needs, what is derived, what must agree."""

from __future__ import annotations

import json
from dataclasses import replace

import published_layout
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.dataset import DatasetDirectory, write_documents
from merlin_sim.schemas.feature_spec import Chunk, Feature, FeatureSpec
from merlin_sim.schemas.merlin_import import Schema, Tags
from merlin_sim.schemas.schema_file import read_schema, write_schema


def test_open(directory):
    dataset = DatasetDirectory.open(directory)
    assert dataset.channels["positive_history"] == ["item_id_pos", "cat_id_pos"]
    assert dataset.schema.column_names == published_layout.COLUMNS
    assert [file.name for file in dataset.files("train")] == ["part.2.parquet", "part.10.parquet"]
    assert [file.name for file in dataset.files("test")] == ["part.0.parquet"]
    assert all(file.exists() for file in dataset.files("train"))
    with pytest.raises(MerlinSimError, match="at least 1 feature for dlrm"):
        DatasetDirectory.open(directory, model="dlrm")
    assert DatasetDirectory.open(directory, model="sim").channels == dataset.channels


def test_documents_are_derived_where_they_are_missing_and_written_as_they_are_read(directory):
    whole = DatasetDirectory.open(directory)
    (directory / "schema.pbtxt").unlink()
    (directory / "metadata.json").unlink()
    bare = DatasetDirectory.open(directory)
    assert (bare.spec, bare.schema) == (whole.spec, whole.schema)
    (directory / "feature_spec.yaml").unlink()
    write_documents(directory, whole.spec)
    assert DatasetDirectory.open(directory).spec == whole.spec
    metadata = json.loads((directory / "metadata.json").read_text())
    assert metadata["cardinalities"] == [
        {"name": "user_id", "value": 9},
        {"name": "item_id", "value": 50},
        {"name": "cat_id", "value": 7},
    ]


def test_a_bare_schema_and_parquet_open_by_their_tags(directory):
    whole = DatasetDirectory.open(directory)
    for name in ("feature_spec.yaml", "metadata.json", "schema.pbtxt"):
        (directory / name).unlink()
    columns = []
    for column in whole.schema:
        properties = {k: v for k, v in column.properties.items() if k != "feature_spec"}
        columns.append(replace(column, properties=properties, dims=column.shape.as_tuple))
    write_schema(Schema(columns), directory / "schema.pbtxt")
    bare = DatasetDirectory.open(directory)
    assert bare.channels == whole.channels
    assert bare.files("train") == whole.files("train")
    good = (directory / "schema.pbtxt").read_text()
    (directory / "schema.pbtxt").write_text(good.replace("max: 7\n", "", 1))
    with pytest.raises(MerlinSimError, match=str(directory / "schema.pbtxt")):
        DatasetDirectory.open(directory, model="sim")
    untagged = [replace(column, tags=[Tags.CATEGORICAL]) for column in columns]
    write_schema(Schema(untagged), directory / "schema.pbtxt")
    with pytest.raises(MerlinSimError, match="label: no column is tagged Tags.TARGET"):
        DatasetDirectory.open(directory)
    # As NVTabular's Dataset.to_parquet leaves it: a schema in each directory.
    (directory / "schema.pbtxt").unlink()
    (directory / "train" / "schema.pbtxt").write_text(good)
    assert DatasetDirectory.open(directory).channels == whole.channels


def test_descriptions_that_contradict_each_other(directory):
    schema = read_schema(directory / "schema.pbtxt")
    write_schema(schema.excluding_by_name(["cat_id_neg"]), directory / "schema.pbtxt")
    with pytest.raises(MerlinSimError, match=r"columns missing: \['cat_id_neg'\]"):
        DatasetDirectory.open(directory)


SIZES = [{"name": "uid", "value": 9}, {"name": "item", "value": 50}, {"name": "cat", "value": 7}]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"cardinalities": SIZES}, None),  # names are free
        (
            {"cardinalities": [*SIZES[:2], {"name": "cat", "value": 70}]},
            "expected 7 for cat_id, as",
        ),
        ({"cardinalities": SIZES[:2]}, "expected 3 entries"),
        ({"cardinalities": [*SIZES[:2], SIZES[0]]}, "expected each name once, got 'uid' again"),
        ([], "got no such list"),
        ("{", "Expecting property name"),
        ({"cardinalities": [{"name": "x", "value": True}]}, r"cardinalities\[0\]"),
    ],
)
def test_metadata_is_of_the_published_form_and_says_what_the_spec_says(
    directory, metadata, message
):
    text = metadata if isinstance(metadata, str) else json.dumps(metadata)
    (directory / "metadata.json").write_text(text)
    if message is None:
        DatasetDirectory.open(directory)
        return
    with pytest.raises(MerlinSimError, match=message):
        DatasetDirectory.open(directory)


def test_files_that_lack_a_column_or_are_no_parquet(directory):
    file = directory / "train" / "part.10.parquet"
    table = pq.read_table(file)
    flat = pa.array([1] * len(table))
    index = table.column_names.index("cat_id_neg")
    pq.write_table(table.drop(["user_id"]).set_column(index - 1, "cat_id_neg", flat), file)
    (directory / "test" / "part.0.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(MerlinSimError) as caught:
        DatasetDirectory.open(directory)
    message = str(caught.value)
    assert "part.10.parquet: user_id: expected one column, got none" in message
    assert "part.10.parquet: cat_id_neg: expected lists of whole numbers (dtype int64)" in message
    assert "got whole numbers (int64)" in message
    assert "part.0.parquet: expected a parquet file" in message
    DatasetDirectory.open(directory, check_files=False)


def test_what_is_no_dataset(tmp_path):
    with pytest.raises(MerlinSimError, match="does not exist"):
        DatasetDirectory.open(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(MerlinSimError, match="is a file"):
        DatasetDirectory.open(tmp_path / "file")
    with pytest.raises(MerlinSimError, match="found neither"):
        DatasetDirectory.open(tmp_path)
    with pytest.raises(MerlinSimError, match="no such feature spec"):
        DatasetDirectory.open(tmp_path, feature_spec="other.yaml")


def test_only_whole_parquet_has_files(tmp_path):
    sources = {}
    for mapping in ("train", "test"):
        (tmp_path / f"{mapping}.csv").touch()
        sources[mapping] = (Chunk("csv", ("label",), (f"{mapping}.csv",)),)
    spec = FeatureSpec({"label": Feature("bool")}, sources, {"label": ("label",)})
    spec.write(tmp_path / "feature_spec.yaml")
    dataset = DatasetDirectory.open(tmp_path)
    with pytest.raises(MerlinSimError, match="train is in csv; expected one chunk of parquet"):
        dataset.files("train")
    with pytest.raises(MerlinSimError, match="no mapping 'valid'"):
        dataset.files("valid")
