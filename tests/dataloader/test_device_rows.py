"""Rows that Merlin's own loader reads, as on a GPU: the batches are those of the CPU.

Merlin's loader computes with pandas here, TensorFlow on the processor; what is ours is what runs on
a GPU, but for the memory.
"""

from __future__ import annotations

import merlin.dataloader.tensorflow
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from merlin.io import Dataset
from merlin.schema import ColumnSchema, Schema, Tags
from small_logs import LONGEST, make_table, open_dataset, write_files
from stand_in import SHORT_OF_MEMORY

from merlin_sim.dataloader import row_loader
from merlin_sim.dataloader.row_check import DataError
from merlin_sim.dataloader.row_loader import DeviceRows, RowLoader
from merlin_sim.foundation.exceptions import MerlinSimError


@pytest.fixture
def gpu(monkeypatch):
    """Have Merlin's loader read the rows from now on; gives the partitions that it read."""
    read = []

    def put_in():
        monkeypatch.setattr(row_loader, "StoredRows", DeviceRows)
        by_merlin = DeviceRows._read_by_merlin

        def recorded(self, part):
            read.append((part.origin, part.number))
            return by_merlin(self, part)

        monkeypatch.setattr(DeviceRows, "_read_by_merlin", recorded)
        return read

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


@pytest.mark.filterwarnings("error:.*were read on the host")
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("memory", [0, 100])
def test_batches_are_those_of_the_cpu(tmp_path, gpu, shuffle, ragged, memory):
    dataset = open_dataset(write_files(tmp_path, [[30, 11], [15]], ragged=ragged), ragged=ragged)
    options = {"shuffle": shuffle, "seed": 3, "window_rows": 16, "data_memory_mb": memory}
    expected = collect(RowLoader(dataset, 8, **options))
    read = gpu()
    assert_same(expected, collect(RowLoader(dataset, 8, **options)))
    assert len(set(read)) == 3 and (len(read) == 3 or not memory)  # by Merlin's loader


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_each_rank_gets_its_rows_of_the_cpu(tmp_path, gpu, rank):
    dataset = open_dataset(write_files(tmp_path, [[7, 30, 0, 3], [15, 8]]))
    ranks = {"global_size": 3, "global_rank": rank}
    options = {"shuffle": True, "seed": 5, "window_rows": 24, **ranks}
    expected = collect(RowLoader(dataset, 4, **options))
    gpu()
    assert_same(expected, collect(RowLoader(dataset, 4, **options)))
    later = RowLoader(dataset, 4, **options)
    later.start_at(0, 3)
    assert_same(expected[3:], collect(later))


def test_what_lies_before_the_first_step_is_not_read(tmp_path, gpu):
    dataset = open_dataset(write_files(tmp_path, [[8, 8, 8], [8, 8, 8]]))
    read = gpu()
    loader = RowLoader(dataset, 8, window_rows=16, data_memory_mb=0)
    loader.start_at(0, 4)
    assert len(collect(loader)) == 2
    assert [number for _, number in read] == [1, 2]


def test_ids_come_in_the_type_that_stays_on_the_device(tmp_path, gpu):
    dataset = open_dataset(write_files(tmp_path, [[9]]))
    expected = collect(RowLoader(dataset, 4))
    gpu()
    received = collect(RowLoader(dataset, 4))
    assert_same(expected, received)
    assert {received[0][0][name].dtype for name in ("item", "history")} == {np.dtype(np.int64)}


def kernels_of(op, kind, attribute="T"):
    """The arguments that a device's kernels of an op for a type have on the host, by kernel."""
    from tensorflow.python.framework import kernels

    return [
        list(kernel.host_memory_arg)
        for kernel in kernels.get_registered_kernels_for_op(op).kernel
        if kernel.device_type in ("GPU", "DEFAULT")
        for constraint in kernel.constraint
        if constraint.name == attribute
        and kind.as_datatype_enum in constraint.allowed_values.list.type
    ]


@pytest.mark.parametrize(("kind", "on_host"), [(tf.int32, True), (tf.int64, False)])
def test_tensorflow_takes_int32_arguments_to_the_host(kind, on_host):
    """Why ids are not compact on a GPU, of which this TensorFlow has the kernels."""
    for op, argument in {"_Arg": "output", "StridedSlice": "input", "ConcatV2": "values"}.items():
        found = kernels_of(op, kind)
        assert found and (argument in found[0]) == on_host


VALUES_OF = {
    "GatherV2": ("Tparams", "params"),
    "StridedSlice": ("T", "input"),
    "ConcatV2": ("T", "values"),
    "SelectV2": ("T", "t"),
    "Reshape": ("T", "tensor"),
}


@pytest.mark.parametrize("op", VALUES_OF)
@pytest.mark.parametrize("kind", [tf.int64, tf.float32, tf.float64, tf.bool])
def test_what_rows_are_made_of_has_kernels_on_a_gpu(op, kind):
    attribute, argument = VALUES_OF[op]
    found = kernels_of(op, kind, attribute)
    assert found and not any(argument in on_host for on_host in found)


@pytest.mark.parametrize("op", ["Cast"])
def test_offsets_are_computed_on_a_gpu(op):
    found = kernels_of(op, tf.int64, "SrcT")
    assert found and not any("input" in on_host for on_host in found)


def test_a_rank_without_rows_in_the_last_step_gets_an_empty_batch(tmp_path, gpu):
    dataset = open_dataset(write_files(tmp_path, [[9]]))
    gpu()
    options = {"global_size": 2, "global_rank": 0, "shuffle": True}
    batches = collect(RowLoader(dataset, 4, **options))
    assert [len(labels) for _, labels in batches] == [4, 0]
    assert set(batches[0][0]) == set(batches[1][0])
    assert batches[1][0]["history"].shape == (0, LONGEST)


@pytest.mark.filterwarnings("ignore:.*were read on the host")
def test_histories_may_be_empty_in_every_row(tmp_path, gpu):
    table = make_table(6)
    empty = pa.array([[]] * 6, pa.list_(pa.int64()))
    table = table.set_column(table.column_names.index("history"), "history", empty)
    pq.write_table(table, tmp_path / "part.0.parquet")
    dataset = open_dataset([str(tmp_path / "part.0.parquet")])
    expected = collect(RowLoader(dataset, 4))
    gpu()
    assert_same(expected, collect(RowLoader(dataset, 4)))


FAULTS = {
    "an id": {"item": pa.array([1, 2, 41, 4, 5, 6])},
    "a negative id": {"item": pa.array([1, 2, -1, 4, 5, 6])},
    "an id of a history": {"history": pa.array([[1], [], [5, 99], [1], [1], [1]])},
    "a label": {"label": pa.array([0.0, 1.0, 0.5, 1.0, 0.0, 1.0], pa.float32())},
    "a missing id": {"item": pa.array([1, 2, None, 4, 5, 6])},
    "a missing history": {"history": pa.array([[1], [], None, [1], [1], [1]])},
    "a missing element": {"history": pa.array([[1], [], [5, None], [1], [1], [1]])},
    "a short vector": {"look": pa.array([[0.5] * (2 + (row != 2)) for row in range(6)])},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_the_cpu_refuses_is_refused_with_the_same_words(tmp_path, gpu, fault):
    table = make_table(6).append_column("look", pa.array([[0.5] * 3] * 6))
    for name, column in FAULTS[fault].items():
        table = table.set_column(table.column_names.index(name), name, column)
    path = str(tmp_path / "part.0.parquet")
    pq.write_table(table, path)
    tags = ["target_item_numerical", Tags.CONTINUOUS]
    look = ColumnSchema("look", dtype="float64", tags=tags, dims=(None, 3))
    schema = Schema([*open_dataset([path]).schema, look])
    dataset = Dataset([path], engine="parquet", schema=schema, cpu=True, row_groups_per_part=1)
    with pytest.raises(DataError, match="row 3") as expected:
        collect(RowLoader(dataset, 4))
    gpu()
    with pytest.raises(DataError) as received:
        collect(RowLoader(dataset, 4))
    assert str(received.value) == str(expected.value)


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, gpu):
    paths = write_files(tmp_path, [[9], [9]])
    loader = RowLoader(open_dataset(paths), 4)
    gpu()
    assert loader.samples == 18
    write_files(tmp_path, [[9], [9, 1]])
    with pytest.raises(DataError, match="changed while it was read"):
        collect(loader)


@pytest.mark.parametrize("error", SHORT_OF_MEMORY)
def test_a_feed_without_memory_says_what_to_lower(tmp_path, gpu, monkeypatch, error):
    dataset = open_dataset(write_files(tmp_path, [[9]]))
    gpu()

    def fail(*arguments, **options):
        raise SHORT_OF_MEMORY[error]

    monkeypatch.setattr(merlin.dataloader.tensorflow.Loader, "make_tensors", fail)
    monkeypatch.delenv("TF_MEMORY_ALLOCATION", raising=False)
    with pytest.raises(MerlinSimError) as said:
        collect(RowLoader(dataset, 4, data_memory_mb=512))
    assert str(said.value).startswith("the feed is out of GPU memory: ")
    assert str(said.value).endswith(
        "A smaller `data_memory_mb` (512) needs less; TF_MEMORY_ALLOCATION (0.5) is what TensorFlow"
        " may take of it."
    )


def test_what_the_host_has_no_memory_for_is_not_taken_for_a_gpus(tmp_path, gpu, monkeypatch):
    dataset = open_dataset(write_files(tmp_path, [[9]]))
    gpu()

    def fail(*arguments, **options):
        raise MemoryError("Unable to allocate 3.00 GiB")

    monkeypatch.setattr(DeviceRows, "_dense", fail)
    with pytest.raises(MemoryError, match="^Unable to allocate"):
        collect(RowLoader(dataset, 4))
