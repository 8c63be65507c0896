"""TFRecords become parquet: single samples, batches of them, and records that are damaged."""

from __future__ import annotations

import re

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
from merlin_sim.workflows.transcoding import tfrecord


def test_tfrecords_of_single_samples(tmp_path, transcode, monkeypatch):
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


@pytest.mark.parametrize(("count", "size"), [(50, 8), (48, 8), (3, 8)])
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


@pytest.fixture
def refused(tmp_path, transcode):
    """What is said of records that train, beside sound ones that test."""

    def refused(records):
        if records is not None:
            write_records(tmp_path / "s/train.tfrecord", records)
        write_records(tmp_path / "s/test.tfrecord", sim_rows(5))
        files = {"train": ["train.tfrecord"], "test": ["test.tfrecord"]}
        write_spec(tmp_path / "s", sim_spec("tfrecord", files))
        with pytest.raises(MerlinSimError) as caught:
            transcode(tmp_path / "s", tmp_path / "dataset")
        assert not (tmp_path / "dataset").exists()
        return str(caught.value)

    return refused


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("item_pos", lambda v: v[:-1], "record 2: item_pos: expected 6 values a sample"),
        ("user", lambda v: v[:-1], "record 2: user: expected as many values as samples"),
        ("cat_neg", lambda v: [10] * len(v), r"row 9: cat_neg: .*0\.\.9.*found 10"),
        ("label", lambda v: [2] * len(v), "row 9: label: expected bool, found 2"),
    ],
)
def test_tfrecords_that_do_not_add_up(name, change, message, refused):
    batches = prebatch(sim_rows(24), 8)
    batches[1] = {**batches[1], name: change(np.ravel(batches[1][name]).tolist())}
    assert re.search(f"train.tfrecord, {message}", refused(batches))


@pytest.mark.parametrize("name", ["item_pos", "user"])
def test_a_feature_that_a_record_lacks_is_no_empty_one(name, refused):
    rows = sim_rows(30)
    rows[4] |= {"item_pos": [], "cat_pos": []}
    rows[7] |= {"item_pos": [], "cat_pos": []}
    del rows[7][name]
    assert re.search(f"train.tfrecord, record 8: .*{name}|record 8: user", refused(rows))


def test_damaged_tfrecords(tmp_path, refused):
    import tensorflow as tf

    path = tmp_path / "s/train.tfrecord"
    write_records(path, sim_rows(30))
    path.write_bytes(path.read_bytes()[:-10])
    assert "record 30: damaged or cut short" in refused(None)

    def write_raw(*records):
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in records:
                writer.write(record)

    write_raw(b"no example")
    assert "record 1: not a tf.train.Example" in refused(None)
    example = tf.train.Example()
    example.features.feature["user"].bytes_list.value.append(b"\xde\xff")
    no_text = example.SerializeToString().replace(b"user", b"\xc8\xffer")  # in a name
    write_raw(no_text, no_text[::-1])
    assert re.search("train.tfrecord, record [12]: ", refused(None))
