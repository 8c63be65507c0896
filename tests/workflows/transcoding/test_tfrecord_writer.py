"""Data go back to TFRecord: read as the published pipeline reads them, and by transcode again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import published_layout
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
import yaml
from in_process import run

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.adopt import adopt
from merlin_sim.schemas.dataset import DatasetDirectory, write_documents
from merlin_sim.schemas.feature_spec import Chunk, Feature, FeatureSpec
from merlin_sim.workflows.transcoding import tfrecord
from merlin_sim.workflows.transcoding.tfrecord import encode_examples

LENGTH = 6


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """40 + 40 rows of train and 40 of test, ragged histories."""
    directory = published_layout.write(tmp_path_factory.mktemp("published") / "books")
    adopt(directory, 1)
    return directory


def rows_of(directory: Path, mapping: str) -> dict:
    """The rows as numbers, histories padded."""
    table = pa.concat_tables(
        [pq.read_table(file) for file in DatasetDirectory.open(directory).files(mapping)],
        promote=True,
    )
    return {
        name: [
            [0] * (LENGTH - len(value)) + value if isinstance(value, list) else int(value)
            for value in table[name].to_pylist()
        ]
        for name in table.schema.names
    }


def read_as_published(directory: Path, mapping: str, prebatch: int) -> dict:
    """What `tf.data` and `tf.io.parse_example` give with fixed lengths, as they are read there."""
    spec = yaml.safe_load((directory / "feature_spec.yaml").read_text())
    files = [str(directory / file) for file in spec["source_spec"][mapping][0]["files"]]
    rest = files.pop() if files[-1].endswith("/remainder.tfrecord") else None
    fixed = {}
    for name, feature in spec["feature_spec"].items():
        dimensions = list(feature.get("dimensions") or ([1] if prebatch else []))
        if prebatch:
            dimensions[0] *= prebatch
        fixed[name] = tf.io.FixedLenFeature(dimensions, tf.int64)
    batches = [
        tf.io.parse_example(batch, fixed) for batch in tf.data.TFRecordDataset(files).batch(3)
    ]
    if rest:
        ragged = {name: tf.io.RaggedFeature(tf.int64) for name in fixed}
        batches += [tf.io.parse_single_example(r, ragged) for r in tf.data.TFRecordDataset(rest)]
    found = {}
    for name, feature in spec["feature_spec"].items():
        values = np.concatenate([batch[name].numpy().ravel() for batch in batches])
        length = feature.get("dimensions")
        found[name] = (values.reshape(-1, length[0]) if length else values).tolist()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prebatch", "train", "test"),
    [
        (0, [f"part_{n}" for n in range(8)], [f"part_{n}" for n in range(4)]),
        (16, [f"part_{n}" for n in range(5)], ["part_0", "part_1", "remainder"]),
        (100, ["remainder"], ["remainder"]),
    ],
)
def test_there_as_the_published_pipeline_reads_and_back(
    prebatch, train, test, source, tmp_path, transcode, monkeypatch
):
    monkeypatch.setattr(tfrecord, "BYTES_AT_ONCE", 4096)  # several pieces a file
    there, back = tmp_path / "there", tmp_path / "back"
    sizes = ("--prebatch_train_size", prebatch, "--prebatch_test_size", prebatch)
    transcode(source, there, "--to", "tfrecord", *sizes)
    spec = yaml.safe_load((there / "feature_spec.yaml").read_text())
    assert spec["feature_spec"]["label"] == {"dtype": "bool"}
    for mapping, names in (("train", train), ("test", test)):
        (chunk,) = spec["source_spec"][mapping]
        assert chunk["type"] == "tfrecord"
        assert chunk["files"] == [f"{mapping}/{name}.tfrecord" for name in names]
        assert read_as_published(there, mapping, prebatch) == rows_of(source, mapping)
    transcode(there, back)
    for mapping in ("train", "test"):
        assert rows_of(back, mapping) == rows_of(source, mapping)


def test_parts_are_of_nearly_equal_size(source, tmp_path, transcode):
    there = tmp_path / "there"
    transcode(source, there, "--to", "tfrecord", "--train_parts", 3, "--test_parts", 100)
    files = sorted((there / "train").iterdir())
    counts = [sum(1 for _ in tf.data.TFRecordDataset(str(file))) for file in files]
    assert counts == [27, 27, 26]
    assert len(list((there / "test").iterdir())) == 40


def test_the_published_layout_needs_no_spec_and_other_names_may_stand(tmp_path, transcode):
    source = published_layout.write(tmp_path / "books")
    for old, new in (("train", "learn"), ("test", "ask"), ("metadata.json", "sizes.json")):
        (source / old).rename(source / new)
    names = ("--train_split_dir", "learn", "--test_split_dir", "ask")
    names += ("--metadata_file", "sizes.json")
    there = (source, tmp_path / "there", "--to", "tfrecord")
    with pytest.raises(MerlinSimError, match="give --number_of_user_features too"):
        transcode(*there, *names)
    transcode(*there, "--number_of_user_features", 1, *names)
    assert not (source / "feature_spec.yaml").exists()
    adopt_words = (source, "--number_of_user_features", 1, *names)
    assert read_as_published(tmp_path / "there", "test", 0)["user_id"]
    assert "adopted" in run("data", "spec", "adopt", *adopt_words)
    assert rows_of(source, "train") == read_as_published(tmp_path / "there", "train", 0)


def test_what_does_not_go_together_is_refused(source, tmp_path, transcode):
    there = tmp_path / "there"
    with pytest.raises(MerlinSimError, match="`train_parts` should be given with `--to tfrecord`"):
        transcode(source, there, "--train_parts", 3)
    with pytest.raises(MerlinSimError, match="`number_of_user_features` should be 1"):
        transcode(source, there, "--to", "tfrecord", "--number_of_user_features", 2)
    rated = tmp_path / "rated"  # with a label that is no truth value
    rated.mkdir()
    features = {"label": Feature("int8"), "kind": Feature("int64", 9)}
    sources = {}
    for mapping in ("train", "test"):
        rows = {"label": [0, 5], "kind": [1, 2 if mapping == "train" else 3]}
        pq.write_table(pa.table(rows), rated / f"{mapping}.parquet")
        sources[mapping] = (Chunk("parquet", tuple(features), (f"{mapping}.parquet",)),)
    channels = {"label": ("label",), "categorical": ("kind",)}
    write_documents(rated, FeatureSpec(features, sources, channels))
    said = "train.parquet, row 2: label: expected 0 or 1, .* found 5"
    with pytest.raises(MerlinSimError, match=said):
        transcode(rated, there, "--to", "tfrecord")
    assert not there.exists()


def test_messages_hold_what_the_columns_do():
    columns = {
        "ids": np.array([[0, 127, 128], [16_384, 2**31, 2**62], [-1, 5, 2**63 - 1]]),
        "times": np.array([[0.5], [-2.0], [3e8]], np.float32),
    }
    for row, record in enumerate(encode_examples(columns)):
        example = tf.train.Example.FromString(record)
        features = example.features.feature
        assert list(features["ids"].int64_list.value) == columns["ids"][row].tolist()
        assert list(features["times"].float_list.value) == columns["times"][row].tolist()
        assert len(features) == 2
