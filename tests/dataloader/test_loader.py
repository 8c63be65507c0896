"""The loader of rows: batches, epochs, orders, threads and memory."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from merlin.io import Dataset
from merlin.schema import Schema
from merlin.schema.io.tensorflow_metadata import TensorflowMetadata
from processes import run
from small_logs import (
    make_schema,
    make_table,
    open_dataset,
    write_files,
    write_sim_dataset,
)
from warm import warm

from merlin_sim.dataloader.background import Background
from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.dataloader.row_loader import RowLoader
from merlin_sim.dataloader.stored_rows import StoredRows
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.dataset import DatasetDirectory

WORKER = Path(__file__).parents[1] / "support/workers/fed_rows_worker.py"


def rows_of(loader):
    return [batch[0]["row"].numpy().tolist() for batch in loader]


def test_batches_stay_as_they_are_while_later_windows_are_read(tmp_path):
    dataset = open_dataset(write_files(tmp_path, [[500, 500], [500]]))
    loader = RowLoader(dataset, 64, shuffle=True, seed=1, window_rows=128)
    kept = [inputs for _ in range(2) for inputs, _ in loader]
    later = []
    for epoch in range(2):
        loader.start_at(epoch)
        later += [{name: value.numpy().copy() for name, value in x.items()} for x, _ in loader]
    assert len(kept) == len(later) == 2 * len(loader)
    for before, after in zip(kept, later, strict=True):
        for name, value in after.items():
            np.testing.assert_array_equal(before[name].numpy(), value)


def test_each_epoch_has_its_own_order_and_can_be_begun_anywhere(tmp_path):
    dataset = open_dataset(write_files(tmp_path, [[40, 40], [40]]))
    loader = RowLoader(dataset, 16, shuffle=True, seed=2, window_rows=48)
    first, second = rows_of(loader), rows_of(loader)
    assert first != second and sorted(sum(first, [])) == sorted(sum(second, []))
    assert loader.epoch == 2
    again = RowLoader(dataset, 16, shuffle=True, seed=2, window_rows=48)
    again.start_at(epoch=1, step=5)
    assert rows_of(again) == second[5:]
    assert again.epoch == 2
    two = RowLoader(dataset, 16, shuffle=True, seed=2, window_rows=48).epochs(2)
    assert len(two) == len(first) * 2
    assert rows_of(two) == first + second


def test_len_peek_and_drop_last(tmp_path):
    dataset = open_dataset(write_files(tmp_path, [[25]]))
    loader = RowLoader(dataset, 10, drop_last=True)
    assert len(loader) == 2 and loader.are_resident
    streamed = RowLoader(dataset, 10, data_memory_mb=0)
    assert "blocks of them are read ahead" in streamed.describe_memory()
    (inputs, _), *_ = loader
    assert inputs["item"].dtype == inputs["history"].dtype == tf.int32  # which can hold these ids
    assert inputs["row"].dtype == tf.int64  # no table, no bound
    loader.start_at(0)
    assert loader.peek()[0]["row"].numpy().tolist() == list(range(10))
    assert rows_of(loader) == [list(range(10)), list(range(10, 20))]
    assert loader.num_rows_processed == 20


def test_only_the_columns_of_the_schema_are_read(tmp_path, monkeypatch):
    asked = []
    read = pq.ParquetFile.read_row_group

    def spy(self, *args, **kwargs):
        asked.append(kwargs["columns"])
        return read(self, *args, **kwargs)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", spy)
    dataset = open_dataset(write_files(tmp_path, [[10]]))
    dataset.schema = Schema([dataset.schema["label"], dataset.schema["item"]])
    batches = [inputs for inputs, _ in RowLoader(dataset, 4)]
    assert set(batches[0]) == {"item"}
    assert sorted(sum(asked, [])) == ["item", "label"]


def test_a_dataset_in_memory_is_left_to_merlins_loader():
    frame = make_table(25).drop_columns(["not_asked_for"]).to_pandas()
    schema = Schema([column for column in make_schema() if column.name != "row"])
    dataset = Dataset(frame[schema.column_names], schema=schema, cpu=True)
    with pytest.raises(MerlinSimError, match="of parquet files.*Merlin's own loader reads it"):
        RowLoader(dataset, 10)


def no_more_than(before):
    """Whether the threads of now are those of before, at the latest after a while."""
    for thread in set(threading.enumerate()) - before:
        thread.join(100)
    return set(threading.enumerate()) <= before


def test_batches_come_from_threads_that_end_with_the_epoch(tmp_path):
    before = set(threading.enumerate())
    loader = RowLoader(open_dataset(write_files(tmp_path, [[50] * 4])), 5, window_rows=10)
    batches = iter(loader)
    next(batches)
    assert set(threading.enumerate()) - before
    loader.stop()
    assert no_more_than(before) and list(batches) == [] and loader.epoch == 0
    assert len(list(loader)) == 40
    assert no_more_than(before) and loader.epoch == 1


@pytest.mark.slow
def test_whoever_drops_an_iterator_leaves_no_thread_and_no_data(tmp_path, monkeypatch):
    kept = []
    read = StoredRows.read

    def watched(self, *arguments):
        columns = read(self, *arguments)
        kept.extend(map(weakref.ref, columns.values()))
        return columns

    monkeypatch.setattr(StoredRows, "read", watched)
    before = set(threading.enumerate())
    dataset = open_dataset(write_files(tmp_path, [[50] * 4]))
    for begin, memory in ((lambda loader: next(iter(loader)), 0), (next, 100)):
        loader = RowLoader(dataset, 5, window_rows=10, shuffle=True, data_memory_mb=memory)
        begin(loader)
        del loader
    assert no_more_than(before)
    gc.collect()
    assert kept and not any(column() is not None for column in kept)


def test_two_iterators_of_a_loader_do_not_meet(tmp_path):
    loader = RowLoader(open_dataset(write_files(tmp_path, [[50]])), 5, shuffle=True)
    pairs = [
        (one["row"].numpy().tolist(), other["row"].numpy().tolist())
        for (one, _), (other, _) in zip(loader, loader, strict=True)
    ]
    assert len(pairs) == 10 and all(one == other for one, other in pairs)
    assert loader.epoch == 1


def test_a_step_is_given_batches_of_one_size_and_traced_once(tmp_path):
    loader, traced = RowLoader(open_dataset(write_files(tmp_path, [[20]])), 8), []

    def step(given):
        traced.append(given)
        return loader.make(given)

    compiled = tf.function(step, autograph=False)
    for of_step, (inputs, labels) in zip(loader.inputs(), loader.reader(), strict=True):
        columns, made, weights = compiled(of_step)
        count = len(labels)
        assert made.shape == weights.shape == (8, 1)
        assert weights.numpy()[:, 0].tolist() == [1.0] * count + [0.0] * (8 - count)
        np.testing.assert_array_equal(made[:count, 0], labels)
        np.testing.assert_array_equal(columns["history"][:count], inputs["history"])
        assert not columns["history"][count:].numpy().any()
    assert loader.epoch == 1 and count == 4
    for of_step in loader.inputs():
        compiled(of_step)
    assert len(traced) == 1


@pytest.mark.slow
def test_memory_is_flat_over_epochs_and_far_below_the_dataset(tmp_path):
    table = make_table(1000).drop_columns(["not_asked_for", "history"])
    table = table.append_column("history", [[np.ones(2000, np.int64)] * 1000])  # 16 MB a row group
    path = tmp_path / "part.0.parquet"
    with pq.ParquetWriter(path, table.schema) as writer:
        for _ in range(24):
            writer.write_table(table)
    schema = make_schema()
    fed_schema = Schema([schema["label"], schema["item"], schema["history"]])
    TensorflowMetadata.from_merlin_schema(fed_schema).to_proto_text_file(str(tmp_path))
    done = run(warm(str(WORKER), str(path)))
    assert done.returncode == 0, done.stderr
    fed = json.loads(done.stdout.splitlines()[-1])
    assert fed["batches"] == [96] * 2
    assert fed["peaks"][1] - fed["peaks"][0] < 100e6
    assert max(fed["peaks"]) - fed["before"] < 24 * 16e6 / 2


def test_it_feeds_keras_fit_for_exactly_its_epochs(tmp_path):
    seen = []

    class Model(tf.keras.Model):
        def train_step(self, data):
            seen.extend(data[0]["row"].numpy().tolist())
            return {"loss": 0.0}

    loader = RowLoader(open_dataset(write_files(tmp_path, [[33, 20]])), 8, shuffle=True)
    model = Model()
    model.compile(run_eagerly=True)
    assert len(model.fit(loader, epochs=3, verbose=0).history["loss"]) == 3
    assert loader.epoch == 3
    assert np.bincount(seen, minlength=53).tolist() == [3] * 53


FED = ["clicked", "who", "thing"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    directory = tmp_path_factory.mktemp("ordered") / "dataset"
    return DatasetDirectory.open(write_sim_dataset(directory, (20, 30, 10), (5,)))


def with_files(dataset, names):
    """Give the dataset with these names as its train files, in this order."""
    (chunk,) = dataset.spec.source_spec["train"]
    sources = {**dataset.spec.source_spec, "train": (replace(chunk, files=tuple(names)),)}
    return replace(dataset, spec=replace(dataset.spec, source_spec=sources))


def fed(dataset):
    feed = open_loader(dataset, "train", FED, 6, Ranks())
    parts = [[labels.numpy().ravel(), inputs["who"], inputs["thing"]] for inputs, labels in feed]
    return np.concatenate([np.column_stack(part) for part in parts])


def stored(dataset):
    tables = [pq.ParquetFile(file).read(FED) for file in dataset.files("train")]
    return np.column_stack([pa.concat_tables(tables)[name].to_numpy() for name in FED])


def test_files_are_read_in_the_order_of_the_spec_and_a_name_is_no_pattern(dataset):
    orders = [
        ["part.2.parquet", "part.0.parquet", "part.1.parquet"],
        ["part.0.parquet", "../train/part.1.parquet", "./part.2.parquet"],
    ]
    patterns = ("part[01].parquet", "part?.parquet", "part*.parquet")
    train = dataset.path / "train"
    for name in patterns:
        (train / name).write_bytes((train / "part.1.parquet").read_bytes())
    for names in [*orders, *([name] for name in patterns), ["part*.parquet", "part.0.parquet"]]:
        reordered = with_files(dataset, [f"train/{name}" for name in names])
        np.testing.assert_array_equal(fed(reordered), stored(reordered))


def test_no_more_is_made_ahead_than_allowed():
    made, wait = [], threading.Event()

    def work():
        for index in range(10):
            made.append(index)
            if len(made) == 3:
                wait.set()
            yield index

    items = Background(work(), ahead=3)
    assert wait.wait(100)
    assert next(items) == 0 and len(made) <= 4
    items.stop()
    assert len(made) <= 5
    items = Background(range(100), ahead=3)
    assert list(items) == list(range(100))
    assert list(items) == []


ENDING = """
import sys
from merlin_sim.dataloader.background import Background

def items():
    try:
        while True:
            yield 1
    finally:
        print("closed", flush=True)

running = Background(items(), ahead=2)
next(running)
sys.exit(7)
"""


def test_a_process_that_ends_waits_for_the_thread():
    """Whatever ended it: a full disk, a refusal, Ctrl-C."""
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, b"closed\n", b"")
