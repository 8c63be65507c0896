"""TFRecords become parquet: single samples, batches of them, and records that are damaged."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from chunked_samples import (
    NAMES,
    pad,
    plain,
    prebatch,
    rows_of,
    sim_rows,
    sim_spec,
    write_records,
    write_spec,
)

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows import parquet_files


def test_tfrecords_of_single_samples(tmp_path, transcode, monkeypatch):
    from merlin_sim.workflows.transcoding import tfrecord

    monkeypatch.setattr(tfrecord, "RECORDS_AT_ONCE", 16)
    monkeypatch.setattr(parquet_files, "ROWS_PER_GROUP", 10)
    monkeypatch.setattr(parquet_files, "ROWS_PER_FILE", 30)
    rows = sim_rows(100)
    write_records(tmp_path / "s/train/part_0.tfrecord", rows[:37])
    write_records(tmp_path / "s/train/part_1.tfrecord", rows[37:])
    write_records(tmp_path / "s/test.tfrecord", rows[:5])
    files = {"train": ["train/part_0.tfrecord", "train/part_1.tfrecord"], "test": ["test.tfrecord"]}
    write_spec(tmp_path / "s", sim_spec("tfrecord", files))
    dataset = transcode(tmp_path / "s", tmp_path / "dataset")
    assert len(dataset.files("train")) == 4
    frame = rows_of(dataset, "train")
    assert list(frame) == NAMES
    assert frame["label"].dtype == bool
    assert plain(frame) == rows
    assert plain(rows_of(dataset, "test")) == rows[:5]


@pytest.mark.parametrize(("count", "size"), [(50, 8), (48, 8), (3, 8), (9, 8)])
def test_prebatched_tfrecords_and_their_remainder(count, size, tmp_path, transcode):
    rows = sim_rows(count)
    batches = prebatch(rows, size)
    whole = count // size
    write_records(tmp_path / "s/train/part_0.tfrecord", batches[:whole])
    files = ["train/part_0.tfrecord"]
    if count % size:
        write_records(tmp_path / "s/train/remainder.tfrecord", batches[whole:])
        files.append("train/remainder.tfrecord")
    write_records(tmp_path / "s/test.tfrecord", list(map(pad, rows[::-1])))
    write_spec(tmp_path / "s", sim_spec("tfrecord", {"train": files, "test": ["test.tfrecord"]}))
    dataset = transcode(tmp_path / "s", tmp_path / "dataset")
    assert plain(rows_of(dataset, "train")) == list(map(pad, rows))
    assert plain(rows_of(dataset, "test")) == list(map(pad, rows[::-1]))


def break_batch(records: list[dict], name: str, change: Callable) -> None:
    records[1] = {**records[1], name: change(np.ravel(records[1][name]).tolist())}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("item_pos", lambda v: v[:-1], "record 2: item_pos: expected 6 values a sample"),
        ("user", lambda v: v[:-1], "record 2: user: expected as many values as samples"),
        ("label", lambda v: [], "record 2: user: expected as many values as samples"),
        ("cat_neg", lambda v: [10] * len(v), r"row 9: cat_neg: .*0\.\.9.*found 10"),
        ("label", lambda v: [2] * len(v), "row 9: label: expected bool, found 2"),
    ],
)
def test_tfrecords_that_do_not_add_up(name, change, message, tmp_path, transcode):
    batches = prebatch(sim_rows(24), 8)
    break_batch(batches, name, change)
    write_records(tmp_path / "s/train.tfrecord", batches)
    write_records(tmp_path / "s/test.tfrecord", prebatch(sim_rows(8), 8))
    files = {"train": ["train.tfrecord"], "test": ["test.tfrecord"]}
    write_spec(tmp_path / "s", sim_spec("tfrecord", files))
    with pytest.raises(MerlinSimError, match=f"train.tfrecord, {message}"):
        transcode(tmp_path / "s", tmp_path / "dataset")
    assert not (tmp_path / "dataset").exists()


def test_damaged_tfrecords(tmp_path, transcode):
    import tensorflow as tf

    rows = sim_rows(30)
    path = tmp_path / "s/train.tfrecord"
    write_records(path, rows)
    write_records(tmp_path / "s/test.tfrecord", rows[:5])
    files = {"train": ["train.tfrecord"], "test": ["test.tfrecord"]}
    write_spec(tmp_path / "s", sim_spec("tfrecord", files))
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    with pytest.raises(MerlinSimError, match="record 30: damaged or cut short"):
        transcode(tmp_path / "s", tmp_path / "dataset")
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(b"no example")
    with pytest.raises(MerlinSimError, match="record 1: not a tf.train.Example"):
        transcode(tmp_path / "s", tmp_path / "dataset")


@pytest.mark.parametrize("name", ["item_pos", "user"])
def test_a_feature_that_a_record_lacks_is_no_empty_one(name, tmp_path, transcode):
    rows = sim_rows(30)
    rows[4] |= {"item_pos": [], "cat_pos": []}
    rows[7] |= {"item_pos": [], "cat_pos": []}
    del rows[7][name]
    write_records(tmp_path / "s/train.tfrecord", rows)
    write_records(tmp_path / "s/test.tfrecord", rows[:5])
    files = {"train": ["train.tfrecord"], "test": ["test.tfrecord"]}
    write_spec(tmp_path / "s", sim_spec("tfrecord", files))
    with pytest.raises(MerlinSimError, match=f"train.tfrecord, record 8: .*{name}|record 8: user"):
        transcode(tmp_path / "s", tmp_path / "dataset")


def test_a_record_whose_names_are_no_text_is_named(tmp_path, transcode):
    import tensorflow as tf

    rows = sim_rows(5)
    for name in ("train", "test"):
        write_records(tmp_path / f"s/{name}.tfrecord", rows)
    example = tf.train.Example()
    example.features.feature["user"].bytes_list.value.append(b"\xde\xff")
    damaged = example.SerializeToString().replace(b"user", b"\xc8\xffer")
    with tf.io.TFRecordWriter(str(tmp_path / "s/train.tfrecord")) as writer:
        writer.write(damaged)
        writer.write(damaged[::-1])
    files = {"train": ["train.tfrecord"], "test": ["test.tfrecord"]}
    write_spec(tmp_path / "s", sim_spec("tfrecord", files))
    with pytest.raises(MerlinSimError, match="train.tfrecord, record [12]: "):
        transcode(tmp_path / "s", tmp_path / "dataset")
