"""CSV and parquet in chunks become one dataset directory, or are refused with file and row."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunked_samples import (
    NAMES,
    SINGLE,
    plain,
    rows_of,
    sim_rows,
    sim_spec,
    write_spec,
)

from merlin_sim.foundation.exceptions import MerlinSimError

# The published example: one csv chunk split by rows, one with the other columns, 3 + 2 rows.
PUBLISHED = """
feature_spec:
  user_gender: {dtype: torch.int8, cardinality: 3}
  user_age: {dtype: torch.int8}
  user_id: {dtype: torch.int32, cardinality: 2655}
  item_id: {dtype: torch.int32, cardinality: 856}
  label: {dtype: torch.float32}
source_spec:
  train:
  - {type: csv, features: [user_gender, user_age], files: [train_0_0.csv, train_0_1.csv]}
  - {type: csv, features: [user_id, item_id, label], files: [train_1.csv]}
  test:
  - {type: csv, features: [user_id, item_id, label, user_gender, user_age], files: [test.csv]}
channel_spec:
  numeric_inputs: [user_age]
  categorical_user_inputs: [user_gender, user_id]
  categorical_item_inputs: [item_id]
  label_ch: [label]
metadata: {origin: here}
"""


FILES = {
    "train_0_0.csv": "0,31\n1,32\n2,33\n",
    "train_0_1.csv": "0,34\n1,35\n",
    "train_1.csv": "10,20,0\n11,21,1\n12,22,0\n13,23,1\n14,24,0\n",
    "test.csv": "1,2,1,0,44\n",
}


@pytest.fixture
def published(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "feature_spec.yaml").write_text(PUBLISHED)
    for name, text in FILES.items():
        (source / name).write_text(text)
    return source


def test_csv_split_by_columns_and_rows(published, tmp_path, transcode):
    dataset = transcode(published, tmp_path / "dataset")
    train = rows_of(dataset, "train")
    assert train["user_age"].tolist() == [31, 32, 33, 34, 35]
    assert train["user_gender"].tolist() == [0, 1, 2, 0, 1]
    assert train["user_id"].tolist() == [10, 11, 12, 13, 14]
    assert train["item_id"].tolist() == [20, 21, 22, 23, 24]
    assert train["label"].tolist() == [0, 1, 0, 1, 0]
    assert train.dtypes.astype(str).to_dict() == {
        "user_gender": "int8", "user_age": "int8", "user_id": "int32", "item_id": "int32",
        "label": "float32",
    }  # fmt: skip
    assert rows_of(dataset, "test").to_dict("records") == [
        {"user_gender": 0, "user_age": 44, "user_id": 1, "item_id": 2, "label": 1.0}
    ]
    assert dataset.spec.feature_spec["user_id"].dtype == "torch.int32"
    assert dataset.spec.metadata == {"origin": "here"}
    assert dataset.channels["categorical_user_inputs"] == ["user_gender", "user_id"]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("train_0_1.csv", "0,34\n", "chunk 0 ends after .*train_0_1.csv, row 1, while another"),
        ("train_1.csv", "1,2,0\n", "chunk 1 ends after .*train_1.csv, row 1, while .*train_0_0"),
        ("train_1.csv", "", "chunk 1 ends without a row"),
        ("train_0_1.csv", "0,34\n3,35\n", r"train_0_1.csv, row 2: user_gender: .*0\.\.2.*found 3"),
        ("train_0_1.csv", "0,34\n1,x\n", "train_0_1.csv, row 2: user_age: .*invalid value 'x'"),
        ("train_0_1.csv", "0,34\n1\n", "train_0_1.csv: .*Expected 2 columns, got 1"),
        ("train_0_1.csv", "0,34\n1,\n", "train_0_1.csv, row 2: user_age: .*no value"),
        ("train_0_1.csv", "0,34\n\n1,35\n", "train_0_1.csv, row 2: user_gender: .*no value"),
        ("train_0_1.csv", "0,34\n1,300\n", "train_0_1.csv, row 2: user_age: .* to int8: .*300"),
    ],
)
def test_what_does_not_fit_is_refused_with_file_and_row(
    file, text, message, published, tmp_path, transcode
):
    (published / file).write_text(text)
    with pytest.raises(MerlinSimError, match=message):
        transcode(published, tmp_path / "dataset")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_an_empty_line_is_a_row_without_a_value(tmp_path, transcode):
    """Of chunks of one column each: left out, the rows between would stand beside others."""
    features = {"label": {"dtype": "int8"}, "kind": {"dtype": "int32", "cardinality": 9}}
    files = {"train": ("0\n1\n\n1\n", "3\n4\n5\n\n"), "test": ("0\n", "8\n")}
    channels = {"label": ["label"], "categorical": ["kind"]}
    sources = {mapping: [] for mapping in files}
    for mapping, texts in files.items():
        for name, text in zip(features, texts, strict=True):
            file = f"{mapping}_{name}.csv"
            (tmp_path / file).write_text(text)
            sources[mapping].append({"type": "csv", "features": [name], "files": [file]})
    write_spec(
        tmp_path, {"feature_spec": features, "source_spec": sources, "channel_spec": channels}
    )
    with pytest.raises(MerlinSimError, match="train_label.csv, row 3: label: .*no value"):
        transcode(tmp_path, tmp_path / "dataset")


def test_cardinalities_are_counted_or_have_to_agree(published, tmp_path, transcode):
    values = [{"name": "user_gender", "value": 3}, {"name": "user_id", "value": 2655}]
    stated = {"cardinalities": [*values, {"name": "item_id", "value": 857}]}
    (published / "metadata.json").write_text(json.dumps(stated))
    with pytest.raises(MerlinSimError, match="expected 856 for item_id, as in the spec, got 857"):
        transcode(published, tmp_path / "dataset")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    text = PUBLISHED.replace("2655", "auto").replace("856", "857")
    (published / "feature_spec.yaml").write_text(text)  # auto says nothing that could disagree
    dataset = transcode(published, tmp_path / "dataset")
    assert dataset.spec.feature_spec["user_id"].cardinality == 15  # ids 0..14
    values = json.loads((tmp_path / "dataset/metadata.json").read_text())["cardinalities"]
    assert {"name": "user_id", "value": 15} in values


@pytest.mark.parametrize("kind", [pa.string(), pa.decimal128(12), pa.date32()])
def test_what_is_no_number_is_not_made_one(kind, published, tmp_path, transcode):
    text = PUBLISHED.replace(
        "csv, features: [user_gender, user_age], files: [train_0_0.csv,",
        "parquet, features: [user_gender, user_age], files: [a.parquet,",
    )
    (published / "feature_spec.yaml").write_text(text.replace("train_0_1.csv", "b.parquet"))
    ages = pa.array([31, 32, 33], pa.int32())
    stored = pa.array(["31", "32", "33"]) if kind == pa.string() else ages
    genders = pa.array([0, 1, 2])
    table = pa.table({"user_gender": genders, "user_age": stored.cast(kind)})
    pq.write_table(pa.table({"user_gender": genders, "user_age": ages}), published / "a.parquet")
    pq.write_table(table, published / "b.parquet")
    with pytest.raises(MerlinSimError, match="b.parquet: user_age: expected numbers, found"):
        transcode(published, tmp_path / "dataset")


@pytest.mark.parametrize(
    ("form", "value"), [("parquet", float("nan")), ("parquet", 1e300), ("tfrecord", 1e300)]
)
def test_a_number_that_is_not_finite_is_refused(form, value, tmp_path, run_cli):
    source = tmp_path / "source"
    source.mkdir()
    features = {"label": {"dtype": "int8"}, "price": {"dtype": "float32"}}
    features["unused"] = {"dtype": "float64"}
    chunk = {"type": "parquet", "features": list(features)}
    sources = {name: [{**chunk, "files": [f"{name}.parquet"]}] for name in ("train", "test")}
    channels = {"label": ["label"], "numerical": ["price"]}
    write_spec(source, {"feature_spec": features, "source_spec": sources, "channel_spec": channels})

    def transcode(price, unused):
        rows = {"label": [0, 1, 0], "price": [0.5, 1e38, price], "unused": [0.0, unused, 1.0]}
        pq.write_table(pa.table(rows), source / "train.parquet")
        pq.write_table(pa.table(rows).slice(0, 1), source / "test.parquet")
        options = ("--input", source, "--output", tmp_path / "dataset", "--overwrite", "--to", form)
        return str(run_cli("data", "transcode", *options).exception)

    assert re.search(
        "train.parquet, row 3: price: expected a finite .* 32 bits", transcode(value, 2)
    )
    too_large = form == "tfrecord" and value == 1e300
    said = "row 2: unused: expected a finite number of 32 bits" if too_large else "^None$"
    assert re.search(said, transcode(1.5, value))


@pytest.mark.slow
def test_a_damaged_footer_is_reported_with_its_file(tmp_path):
    from merlin_sim.schemas.feature_spec import Chunk, Feature
    from merlin_sim.workflows.transcoding.chunk_files import read_chunk

    path, refused = tmp_path / "a.parquet", 0
    pq.write_table(pa.table({"user": pa.array([1, 2], pa.uint8()), "price": [0.5, 1.5]}), path)
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    chunk = Chunk("parquet", ("user", "price"), ("a.parquet",))
    features = {"user": Feature("int64", 5), "price": Feature("float32")}
    for at in range(start, len(content)):
        for bits in (0x01, 0x40, 0xFF):
            changed = bytearray(content)
            changed[at] ^= bits
            path.write_bytes(changed)
            try:
                list(read_chunk(tmp_path, chunk, features))
            except MerlinSimError as error:
                assert str(path) in str(error)
                refused += 1
    assert refused > 300


def write_parquet(source: Path, rows: list[dict], columns=None, name="data.parquet") -> None:
    source.mkdir(exist_ok=True)
    frame = pd.DataFrame(rows)
    frame.to_parquet(source / name, row_group_size=7)


def test_parquet_chunks_and_ids_of_shared_tables(tmp_path, transcode):
    rows = sim_rows(40)
    source = tmp_path / "s"
    frame = pd.DataFrame(rows)
    source.mkdir()
    for mapping, part in (("train", frame), ("test", frame[:5])):
        part[NAMES[4:]].to_parquet(source / f"{mapping}_lists.parquet", row_group_size=7)
        part[SINGLE[::-1]].to_parquet(source / f"{mapping}_single.parquet", row_group_size=16)
    spec = sim_spec("parquet", {})
    for feature in spec["feature_spec"].values():
        if "cardinality" in feature:
            feature["cardinality"] = "auto"
    spec["source_spec"] = {
        mapping: [
            {"type": "parquet", "features": SINGLE, "files": [f"{mapping}_single.parquet"]},
            {"type": "parquet", "features": NAMES[4:], "files": [f"{mapping}_lists.parquet"]},
        ]
        for mapping in ("train", "test")
    }
    write_spec(source, spec)
    dataset = transcode(source, tmp_path / "dataset")
    assert plain(rows_of(dataset, "train")) == rows
    largest = max(max(map(max, filter(None, frame[n]))) for n in ("item_pos", "item_neg"))
    largest = max(largest, frame["item_trgt"].max())
    for name in ("item_trgt", "item_pos", "item_neg"):
        assert dataset.spec.feature_spec[name].cardinality == largest


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("item_neg", [1], "row 12: negative_history: cat_neg has 3 values, but item_neg has 1"),
        ("cat_pos", [1] * 7, "row 12: cat_pos: expected at most 6 values"),
        ("item_pos", [1, 91, 2], r"row 12: item_pos: .*0\.\.90 .*found 91"),
        ("item_trgt", 91, "row 12: item_trgt: .*found 91"),
    ],
)
def test_histories_are_checked(name, value, message, tmp_path, transcode):
    rows = [{**row, "label": True} for row in sim_rows(30)]
    rows[11].update(item_pos=[1, 2, 3], cat_pos=[1, 2, 3], item_neg=[1, 2, 3], cat_neg=[1, 2, 3])
    rows[11][name] = value
    write_parquet(tmp_path / "s", rows)
    write_parquet(tmp_path / "s", rows[:5], name="test.parquet")
    files = {"train": ["data.parquet"], "test": ["test.parquet"]}
    write_spec(tmp_path / "s", sim_spec("parquet", files))
    with pytest.raises(MerlinSimError, match=f"data.parquet, {message}"):
        transcode(tmp_path / "s", tmp_path / "dataset")
    assert not (tmp_path / "dataset").exists()


def test_columns_that_are_missing_and_lists_in_csv(tmp_path, transcode):
    write_parquet(tmp_path / "s", [{"label": True, "user": 1}])
    write_parquet(tmp_path / "s", [{"label": False, "user": 2}], name="test.parquet")
    files = {"train": ["data.parquet"], "test": ["test.parquet"]}
    write_spec(tmp_path / "s", sim_spec("parquet", files))
    with pytest.raises(MerlinSimError, match="expected the columns item_trgt, .*found only label"):
        transcode(tmp_path / "s", tmp_path / "dataset")
    write_spec(tmp_path / "s", sim_spec("csv", files))
    with pytest.raises(MerlinSimError, match="csv holds single values"):
        transcode(tmp_path / "s", tmp_path / "dataset")
