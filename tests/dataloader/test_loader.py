from __future__ import annotations

import gc
import json
import sys
import threading
import weakref
from pathlib import Path

import merlin.dataloader.tensorflow
import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from merlin.io import Dataset
from merlin.schema import Schema
from merlin.schema.io.tensorflow_metadata import TensorflowMetadata
from processes import run
from small_logs import LONGEST, make_schema, make_table, open_dataset, write_files

from merlin_sim.dataloader.row_loader import RowLoader
from merlin_sim.dataloader.stored_rows import StoredRows
from merlin_sim.foundation.exceptions import MerlinSimError

WORKER = Path(__file__).parents[1] / "support/workers/fed_rows_worker.py"


def rows_of(loader):
    return [batch[0]["row"].numpy().tolist() for batch in loader]


def ragged_lists_of(inputs, name="history"):
    values, offsets = inputs[f"{name}__values"].numpy(), inputs[f"{name}__offsets"].numpy()
    return [values[a:b].tolist() for a, b in zip(offsets[:-1], offsets[1:], strict=True)]


def lists_of(inputs, name="history"):
    rows = inputs[name].numpy().tolist()
    assert {len(row) for row in rows} <= {LONGEST}
    return [row[LONGEST - sum(value > 0 for value in row) :] for row in rows]


def test_the_values_are_those_of_merlins_loader(tmp_path):
    dataset = open_dataset(write_files(tmp_path, [[13, 20], [9]]))
    stock = list(merlin.dataloader.tensorflow.Loader(dataset, 10, shuffle=False))
    ours = list(RowLoader(dataset, 10))
    assert [len(label) for _, label in ours] == [10, 10, 10, 10, 2]

    def joined(batches, lists_of):
        inputs = [inputs for inputs, _ in batches]
        columns = {
            name: np.concatenate([batch[name].numpy() for batch in inputs])
            for name in ("row", "item")
        }
        columns["label"] = np.concatenate([label.numpy() for _, label in batches])
        columns["history"] = [values for batch in inputs for values in lists_of(batch)]
        return columns

    expected, received = joined(stock, ragged_lists_of), joined(ours, lists_of)
    assert expected["history"] == received["history"]
    for name in ("row", "item", "label"):
        np.testing.assert_array_equal(expected[name], received[name])
        assert expected[name].dtype.kind == received[name].dtype.kind


@pytest.mark.parametrize("shuffle", [False, True])
def test_ragged_and_padded_files_give_the_same_batches(tmp_path, shuffle):
    ragged = open_dataset(write_files(tmp_path / "ragged", [[30, 11]]))
    padded = open_dataset(write_files(tmp_path / "padded", [[30, 11]], ragged=False), ragged=False)
    left = list(RowLoader(ragged, 8, shuffle=shuffle))
    right = list(RowLoader(padded, 8, shuffle=shuffle))
    assert len(left) == len(right) == 6
    for (a, label_a), (b, label_b) in zip(left, right, strict=True):
        assert a["history"].shape[1] == LONGEST
        np.testing.assert_array_equal(label_a, label_b)
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


def test_ids_that_int32_can_hold_are_int32(tmp_path):
    ((inputs, _),) = RowLoader(open_dataset(write_files(tmp_path, [[30]])), 30)
    assert inputs["item"].dtype == inputs["history"].dtype == tf.int32
    assert inputs["row"].dtype == tf.int64  # no table, no bound


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
    assert len(loader) == 2
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


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_are_the_same_where_blocks_are_read_ahead(tmp_path, shuffle):
    dataset = open_dataset(write_files(tmp_path, [[40, 7], [33, 0, 21]]))
    options = {"shuffle": shuffle, "seed": 2, "window_rows": 16}
    whole = RowLoader(dataset, 8, **options)
    blocks = RowLoader(dataset, 8, data_memory_mb=0, **options)
    assert whole.are_resident and not blocks.are_resident
    assert "blocks of them are read ahead" in blocks.describe_memory()
    for (a, labels), (b, others) in zip(whole, blocks, strict=True):
        np.testing.assert_array_equal(labels, others)
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])
    blocks.start_at(0, 5)
    whole.start_at(0)
    assert rows_of(blocks) == rows_of(whole)[5:]


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
@pytest.mark.parametrize("own, memory", [(False, 0), (True, 100)])
def test_whoever_drops_an_iterator_leaves_no_thread_and_no_data(tmp_path, monkeypatch, own, memory):
    kept = []
    read = StoredRows.read

    def watched(self, *arguments):
        columns = read(self, *arguments)
        kept.extend(map(weakref.ref, columns.values()))
        return columns

    monkeypatch.setattr(StoredRows, "read", watched)
    before = set(threading.enumerate())
    dataset = open_dataset(write_files(tmp_path, [[50] * 4]))
    for _ in range(2):
        loader = RowLoader(dataset, 5, window_rows=10, shuffle=True, data_memory_mb=memory)
        if own:
            next(loader)
        else:
            for _ in loader:  # noqa: B007
                break
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


def test_a_step_is_given_batches_of_one_size(tmp_path):
    loader = RowLoader(open_dataset(write_files(tmp_path, [[20]])), 8)
    for of_step, (inputs, labels) in zip(loader.inputs(), loader.reader(), strict=True):
        columns, made, weights = loader.make(of_step)
        count = len(labels)
        assert made.shape == weights.shape == (8, 1)
        assert weights.numpy()[:, 0].tolist() == [1.0] * count + [0.0] * (8 - count)
        np.testing.assert_array_equal(made[:count, 0], labels)
        np.testing.assert_array_equal(columns["history"][:count], inputs["history"])
        assert not columns["history"][count:].numpy().any()
    assert loader.epoch == 1 and count == 4


def test_a_step_is_traced_once_though_the_last_batch_has_fewer_rows(tmp_path):
    loader = RowLoader(open_dataset(write_files(tmp_path, [[20, 9]])), 8, shuffle=True)
    traced = []

    def step(given):
        traced.append(given)
        return loader.make(given)

    compiled = tf.function(step, autograph=False)
    for _ in range(2):
        for of_step in loader.inputs():
            compiled(of_step)
    assert len(traced) == 1 and loader.epoch == 2


@pytest.mark.slow
def test_memory_is_flat_over_epochs_and_far_below_the_dataset(tmp_path):
    """In a process of its own, with one arena: pieces that allocators keep are not the loader's."""
    table = make_table(1000).drop_columns(["not_asked_for", "history"])
    table = table.append_column("history", [[np.ones(2000, np.int64)] * 1000])  # 16 MB a row group
    path = tmp_path / "part.0.parquet"
    with pq.ParquetWriter(path, table.schema) as writer:
        for _ in range(40):
            writer.write_table(table)
    schema = make_schema()
    fed_schema = Schema([schema["label"], schema["item"], schema["history"]])
    TensorflowMetadata.from_merlin_schema(fed_schema).to_proto_text_file(str(tmp_path))
    plain = ["env", "MALLOC_ARENA_MAX=1", "ARROW_DEFAULT_MEMORY_POOL=system"]
    done = run([*plain, sys.executable, str(WORKER), str(path)])
    assert done.returncode == 0, done.stderr
    fed = json.loads(done.stdout.splitlines()[-1])
    assert fed["batches"] == [160] * 5
    assert max(fed["peaks"][1:]) - fed["peaks"][0] < 100e6
    assert max(fed["peaks"]) - fed["before"] < 40 * 16e6 / 2


@pytest.mark.slow
def test_it_feeds_keras_fit_for_exactly_its_epochs(tmp_path):
    dataset = open_dataset(write_files(tmp_path, [[33, 20]]))
    loader = RowLoader(dataset, 8, shuffle=True)
    seen = []

    class Model(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = tf.keras.layers.Dense(1, activation="sigmoid")

        def call(self, inputs):
            tf.py_function(lambda rows: seen.extend(rows.numpy().tolist()), [inputs["row"]], [])
            history = tf.cast(inputs["history"], tf.float32)
            return self.dense(history)

    model = Model()
    model.compile("sgd", "binary_crossentropy")
    history = model.fit(loader, epochs=3, verbose=0)
    assert len(history.history["loss"]) == 3
    assert loader.epoch == 3
    counts = np.bincount(seen, minlength=53)
    assert counts.min() >= 3 and counts.max() <= 4  # Keras looks at one batch before it begins


class TestRefusals:
    def feed(self, tmp_path, change, numbered=True):
        table = change(make_table(30))
        path = tmp_path / "part.0.parquet"
        pq.write_table(table, path, row_group_size=10)
        return RowLoader(open_dataset([str(path)], numbered=numbered), 8)

    def test_an_id_beyond_its_table(self, tmp_path):
        def change(table):
            items = table["item"].to_pylist()
            items[17] = 41
            return table.set_column(2, "item", [items])

        with pytest.raises(MerlinSimError, match=r"part.0.parquet, row 18: column item.*41"):
            list(self.feed(tmp_path, change))

    def test_an_id_beyond_its_table_in_a_history(self, tmp_path):
        def change(table):
            histories = table["history"].to_pylist()
            histories[23] = [1, 2, 99]
            return table.set_column(3, "history", [histories])

        with pytest.raises(MerlinSimError, match=r"row 24: column history.*0 to 40.*99"):
            list(self.feed(tmp_path, change))

    @pytest.mark.parametrize("value", [float("nan"), None, 0.5])
    def test_labels_that_are_not_labels(self, tmp_path, value):
        def change(table):
            labels = table["label"].to_pylist()
            labels[11] = value
            return table.set_column(0, "label", [labels])

        with pytest.raises(MerlinSimError, match="row 12: column label"):
            list(self.feed(tmp_path, change))

    def test_a_damaged_page(self, tmp_path):
        path = write_files(tmp_path, [[2000, 2000]])[0]
        start = pq.ParquetFile(path).metadata.row_group(1).column(3).data_page_offset
        with open(path, "r+b") as file:
            file.seek(start)
            file.write(b"\xff" * 400)
        with pytest.raises(MerlinSimError, match=r"part.0.parquet is damaged in rows 2001 to 4000"):
            list(RowLoader(open_dataset([path]), 100))

    def test_a_file_cut_short_after_it_was_opened(self, tmp_path):
        path = write_files(tmp_path, [[20]])[0]
        dataset = open_dataset([path])
        loader = RowLoader(dataset, 8)
        with open(path, "r+b") as file:
            file.truncate(100)
        with pytest.raises(MerlinSimError, match="part.0.parquet"):
            list(loader)

    def test_a_missing_column(self, tmp_path):
        with pytest.raises(MerlinSimError, match="lacks the columns item"):
            list(self.feed(tmp_path, lambda table: table.drop_columns(["item"])))

    def test_text(self, tmp_path):
        def change(table):
            return table.set_column(2, "item", [["a"] * 30])

        with pytest.raises(MerlinSimError, match=r"item should hold whole numbers. Received: text"):
            list(self.feed(tmp_path, change))

    def test_a_rank_beyond_the_ranks(self, tmp_path):
        dataset = open_dataset(write_files(tmp_path, [[20]]))
        with pytest.raises(MerlinSimError, match="global_rank"):
            RowLoader(dataset, 8, global_size=2, global_rank=2)


@pytest.mark.slow
def test_it_feeds_merlins_model_fit_evaluate_and_predict(sim_dataset):
    from merlin_sim.models import build_model
    from merlin_sim.schemas.dataset import DatasetDirectory as Directory

    directory = Directory.open(sim_dataset)
    files = [str(file) for file in directory.files("train")]
    source = Dataset(files, engine="parquet", schema=directory.schema, cpu=True)
    model = build_model("din", directory.schema, embedding_dim=4, stage_two_mlp_dims=(8,))
    model.compile(tf.keras.optimizers.legacy.Adam(0.02))
    loader = RowLoader(source, 64, shuffle=True, seed=1)
    history = model.fit(loader, epochs=4, verbose=0).history
    assert len(history["loss"]) == 4 and history["loss"][-1] < history["loss"][0]
    stored = RowLoader(source, 64)
    metrics = model.evaluate(stored, return_dict=True, verbose=0)
    assert metrics["auc"] > 0.6
    assert model.predict(RowLoader(source, 64), verbose=0).shape == (300, 1)
