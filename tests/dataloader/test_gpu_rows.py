"""The GPU's path of the feed, on stand-ins for cudf and cupy: its batches are those of the CPU."""

from __future__ import annotations

import sys
import weakref

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from merlin.io import Dataset
from merlin.schema import ColumnSchema, Schema, Tags
from small_logs import LONGEST, make_table, open_dataset, write_files
from stand_in import SHORT_OF_MEMORY, load

from merlin_sim.dataloader import gpu_rows
from merlin_sim.dataloader import loader as loader_module
from merlin_sim.dataloader.data_error import DataError
from merlin_sim.dataloader.hand_over import device_tensor
from merlin_sim.dataloader.loader import Loader
from merlin_sim.foundation.exceptions import MerlinSimError

CUPY = load("cupy")


@pytest.fixture
def gpu(monkeypatch):
    """Let the loader find a GPU from now on."""

    def put_in():
        monkeypatch.setitem(sys.modules, "cupy", CUPY)
        monkeypatch.setattr(Loader, "_frame_library", lambda self: load("cudf"))

    return put_in


def collect(loader):
    return [
        ({name: tensor.numpy() for name, tensor in inputs.items()}, labels.numpy())
        for inputs, labels in loader
    ]


def assert_same(expected, received):
    assert len(expected) == len(received) > 0
    for (inputs, labels), (other, other_labels) in zip(expected, received, strict=True):
        np.testing.assert_array_equal(labels, other_labels)
        assert list(inputs) == list(other)
        for name in inputs:
            np.testing.assert_array_equal(inputs[name], other[name])


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("pad_lists", [False, True])
def test_batches_are_those_of_the_cpu(tmp_path, gpu, shuffle, ragged, pad_lists):
    dataset = open_dataset(write_files(tmp_path, [[30, 11], [15]], ragged=ragged), ragged=ragged)
    options = {"shuffle": shuffle, "seed": 3, "window_rows": 16, "pad_lists": pad_lists}
    expected = collect(Loader(dataset, 8, **options))
    gpu()
    assert_same(expected, collect(Loader(dataset, 8, **options)))


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_each_rank_gets_its_rows_of_the_cpu(tmp_path, gpu, rank):
    dataset = open_dataset(write_files(tmp_path, [[7, 30, 3], [15, 8]]))
    ranks = {"global_size": 3, "global_rank": rank}
    options = {"shuffle": True, "seed": 5, "window_rows": 24, "pad_lists": True, **ranks}
    expected = collect(Loader(dataset, 4, **options))
    gpu()
    assert_same(expected, collect(Loader(dataset, 4, **options)))


@pytest.mark.parametrize("bytes_in_a_call", [1, 2**30])
def test_how_much_is_read_in_a_call_changes_no_batch(tmp_path, gpu, monkeypatch, bytes_in_a_call):
    dataset = open_dataset(write_files(tmp_path, [[30, 11, 2], [15]]))
    options = {"shuffle": True, "seed": 3, "window_rows": 16, "pad_lists": True}
    expected = collect(Loader(dataset, 8, **options))
    gpu()
    monkeypatch.setattr(gpu_rows, "READ_BYTES", bytes_in_a_call)
    reads = load("cudf").reads
    reads.clear()
    assert_same(expected, collect(Loader(dataset, 8, **options)))
    assert (len(reads) == 1) == (bytes_in_a_call > 1)
    reads.clear()
    loader = Loader(dataset, 8, **options)
    loader.start_at(0, 5)
    assert_same(expected[5:], collect(loader))


def test_what_a_window_lacks_is_read_in_one_call(tmp_path, gpu, monkeypatch):
    monkeypatch.setattr(gpu_rows, "READ_BYTES", 1)
    dataset = open_dataset(write_files(tmp_path, [[8, 8, 8], [8, 8, 8]]))
    gpu()
    reads = load("cudf").reads
    reads.clear()
    assert len(collect(Loader(dataset, 8, window_rows=16))) == 6
    assert reads == [[[0, 1]], [[2], [0]], [[1, 2]]]
    reads.clear()
    assert len(collect(Loader(dataset, 8, shuffle=True, seed=1, window_rows=24))) == 6
    assert len(reads) == 2
    assert sum(len(groups) for read in reads for groups in read) == 6


def test_files_of_different_types_are_read_one_by_one(tmp_path, gpu):
    paths = write_files(tmp_path, [[9], [9]])
    table = pq.read_table(paths[1])
    place = table.column_names.index("item")
    pq.write_table(table.set_column(place, "item", table["item"].cast(pa.int32())), paths[1])
    dataset = open_dataset(paths)
    expected = collect(Loader(dataset, 4))
    gpu()
    assert_same(expected, collect(Loader(dataset, 4)))


def test_a_row_group_among_others_is_named_when_it_is_wrong(tmp_path, gpu):
    paths = write_files(tmp_path, [[4, 4], [4, 4]])
    table = pq.read_table(paths[1])
    ids = table["item"].to_pylist()
    ids[6] = 999
    place = table.column_names.index("item")
    pq.write_table(table.set_column(place, "item", pa.array(ids)), paths[1], row_group_size=4)
    dataset = open_dataset(paths)
    gpu()
    with pytest.raises(DataError, match=rf"{paths[1]}, row 7: column item .* Received: 999"):
        collect(Loader(dataset, 16))


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, gpu):
    paths = write_files(tmp_path, [[9], [9]])
    loader = Loader(open_dataset(paths), 4)
    assert loader.source.part_rows == [9, 9]
    write_files(tmp_path, [[9], [9, 1]])
    gpu()
    with pytest.raises(DataError, match="changed while it was read"):
        collect(loader)


def test_ids_come_in_the_type_that_stays_on_the_device(tmp_path, gpu):
    dataset = open_dataset(write_files(tmp_path, [[9]]))
    options = {"pad_lists": True, "compact_ids": True}
    expected = collect(Loader(dataset, 4, **options))
    gpu()
    received = collect(Loader(dataset, 4, **options))
    assert_same(expected, received)
    assert {received[0][0][name].dtype for name in ("item", "history")} == {np.dtype(np.int64)}


@pytest.mark.parametrize(("kind", "on_host"), [(tf.int32, True), (tf.int64, False)])
def test_tensorflow_takes_int32_arguments_to_the_host(kind, on_host):
    """Why ids are not compact on a GPU, of which this TensorFlow has the kernels."""
    from tensorflow.python.framework import kernels

    [argument] = [
        kernel
        for kernel in kernels.get_registered_kernels_for_op("_Arg").kernel
        if kernel.device_type == "DEFAULT"
        and list(kernel.constraint[0].allowed_values.list.type) == [kind.as_datatype_enum]
    ]
    assert (list(argument.host_memory_arg) == ["output"]) == on_host


def test_a_rank_without_rows_in_the_last_step_gets_an_empty_batch(tmp_path, gpu):
    dataset = open_dataset(write_files(tmp_path, [[9]]))
    gpu()
    for pad in (False, True):
        batches = collect(Loader(dataset, 4, global_size=2, global_rank=0, pad_lists=pad))
        assert [len(labels) for _, labels in batches] == [4, 0]
        assert set(batches[0][0]) == set(batches[1][0])
    assert batches[1][0]["history"].shape == (0, LONGEST)


@pytest.mark.parametrize("pad_lists", [False, True])
def test_histories_may_be_empty_in_every_row(tmp_path, gpu, pad_lists):
    table = make_table(6)
    empty = pa.array([[]] * 6, pa.list_(pa.int64()))
    table = table.set_column(table.column_names.index("history"), "history", empty)
    pq.write_table(table, tmp_path / "part.0.parquet")
    dataset = open_dataset([str(tmp_path / "part.0.parquet")])
    expected = collect(Loader(dataset, 4, pad_lists=pad_lists))
    gpu()
    assert_same(expected, collect(Loader(dataset, 4, pad_lists=pad_lists)))


FAULTS = {
    "an id": {"item": pa.array([1, 2, 41, 4, 5, 6])},
    "a negative id": {"item": pa.array([1, 2, -1, 4, 5, 6])},
    "an id of a history": {"history": pa.array([[1], [], [5, 99], [1], [1], [1]])},
    "a label": {"label": pa.array([0.0, 1.0, 0.5, 1.0, 0.0, 1.0], pa.float32())},
    "a missing id": {"item": pa.array([1, 2, None, 4, 5, 6])},
    "a missing history": {"history": pa.array([[1], [], None, [1], [1], [1]])},
    "a missing element": {"history": pa.array([[1], [], [5, None], [1], [1], [1]])},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_the_cpu_refuses_is_refused_with_the_same_words(tmp_path, gpu, fault):
    table = make_table(6)
    for name, column in FAULTS[fault].items():
        table = table.set_column(table.column_names.index(name), name, column)
    pq.write_table(table, tmp_path / "part.0.parquet")
    dataset = open_dataset([str(tmp_path / "part.0.parquet")])
    with pytest.raises(DataError, match="row 3") as expected:
        collect(Loader(dataset, 4))
    gpu()
    with pytest.raises(DataError) as received:
        collect(Loader(dataset, 4))
    assert str(received.value) == str(expected.value)
    unchecked = collect(Loader(dataset, 4, check=False))
    assert sum(len(labels) for _, labels in unchecked) == 6


@pytest.mark.parametrize("error", SHORT_OF_MEMORY)
@pytest.mark.parametrize("at", ["reading", "a batch"])
def test_a_feed_without_memory_says_what_to_lower(tmp_path, gpu, monkeypatch, error, at):
    dataset = open_dataset(write_files(tmp_path, [[9]]))
    gpu()

    def fail(*arguments, **options):
        raise SHORT_OF_MEMORY[error]

    if at == "reading":
        monkeypatch.setattr(load("cudf"), "read_parquet", fail)
    else:
        monkeypatch.setattr(gpu_rows.DeviceWindow, "batch", fail)
    monkeypatch.delenv("TF_MEMORY_ALLOCATION", raising=False)
    with pytest.raises(MerlinSimError) as said:
        collect(Loader(dataset, 4, window_rows=512))
    assert str(said.value).startswith("the feed is out of GPU memory: ")
    assert str(said.value).endswith(
        "Smaller `window_rows` (512) need less; TF_MEMORY_ALLOCATION (0.5) is what TensorFlow may"
        " take of it."
    )


def test_what_the_host_has_no_memory_for_is_not_taken_for_a_gpus(tmp_path, gpu, monkeypatch):
    dataset = open_dataset(write_files(tmp_path, [[9]]))
    gpu()

    def fail(*arguments, **options):
        raise MemoryError("Unable to allocate 3.00 GiB")

    monkeypatch.setattr(gpu_rows.DeviceWindow, "batch", fail)
    with pytest.raises(MemoryError, match="^Unable to allocate"):
        collect(Loader(dataset, 4))


@pytest.mark.parametrize("length", [2, 4])
def test_a_vector_of_another_length_is_refused_with_the_same_words(tmp_path, gpu, length):
    vectors = [[0.5] * (length if row == 2 else 3) for row in range(6)]
    table = make_table(6).append_column("look", pa.array(vectors, pa.list_(pa.float32())))
    path = str(tmp_path / "part.0.parquet")
    pq.write_table(table, path)
    tags = ["target_item_numerical", Tags.CONTINUOUS]
    look = ColumnSchema("look", dtype="float32", tags=tags, dims=(None, 3))
    schema = Schema([*open_dataset([path]).schema, look])
    dataset = Dataset([path], engine="parquet", schema=schema, cpu=True)
    with pytest.raises(DataError, match=rf"row 3: column look .*3 numbers. Received: {length}"):
        collect(Loader(dataset, 4))
    gpu()
    with pytest.raises(DataError, match=rf"row 3: column look .*3 numbers. Received: {length}"):
        collect(Loader(dataset, 4))


def test_tensorflow_gets_what_is_computed_and_keeps_it(tmp_path, gpu):
    dataset = open_dataset(write_files(tmp_path, [[40]]))
    gpu()
    before = CUPY._Stream.synchronized
    loader = Loader(dataset, 4)
    batches = iter(loader)
    kept = [next(batches)[0]["item"] for _ in range(10)]
    assert CUPY._Stream.synchronized - before >= 10
    assert len(loader._handed) == loader._handed.maxlen  # and no longer than needed
    assert len({tensor.numpy().tobytes() for tensor in kept}) > 1
    loader.stop()


def test_memory_is_kept_while_the_next_batches_are_used_however_many_are_ready(
    tmp_path, gpu, monkeypatch
):
    """TensorFlow lets go of a batch's memory as soon as the step that reads it is queued."""
    arrays = []

    def recorded(array):
        arrays.append(weakref.ref(array))
        return device_tensor(array)

    monkeypatch.setattr(loader_module, "device_tensor", recorded)
    gpu()
    loader = Loader(open_dataset(write_files(tmp_path, [[40]])), 1, prefetch=40, pad_lists=True)
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    assert arrays and all(array() is not None for array in arrays)
    of_four = len(arrays)
    for _ in range(20):
        next(batches)
    assert not any(array() is not None for array in arrays[:of_four])  # and no longer than needed
    loader.stop()


def test_every_batch_of_a_run_has_one_shape(tmp_path, gpu):
    """So that a compiled step is compiled once; the last batch of an epoch may be another."""
    dataset = open_dataset(write_files(tmp_path, [[30, 11], [15]]))
    gpu()
    traced = []

    @tf.function(jit_compile=True, autograph=False)
    def step(history):
        traced.append(history.shape)  # once for each shape that is compiled
        return tf.reduce_sum(history)

    loader = Loader(dataset, 8, shuffle=True, pad_lists=True, compact_ids=True, drop_last=True)
    for _ in range(2):
        sums = [int(step(inputs["history"])) for inputs, _ in loader]
    assert len(sums) == 7
    assert traced == [(8, LONGEST)]
