"""Rows that Merlin's own loader reads, as on a GPU: the batches are those of the CPU.

Merlin's loader computes with pandas here, TensorFlow on the processor; what is ours is what runs on
a GPU, but for the memory.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from gpu_kernels import without_gpu_kernel
from merlin.dataloader.tensorflow import Loader as MerlinsLoader
from small_logs import make_table, open_dataset, write_files
from stand_in import SHORT_OF_MEMORY

from merlin_sim.dataloader import row_loader
from merlin_sim.dataloader.row_check import DataError
from merlin_sim.dataloader.row_loader import DeviceRows, RowLoader
from merlin_sim.foundation.exceptions import MerlinSimError


@pytest.fixture
def gpu(monkeypatch):
    """Have Merlin's loader read the rows from now on; gives the partitions that it read."""
    read = []
    make_tensors = MerlinsLoader.make_tensors

    def recorded(self, *arguments, **options):
        read.append(int(self.indices[0]))
        return make_tensors(self, *arguments, **options)

    def put_in():
        monkeypatch.setattr(row_loader, "StoredRows", DeviceRows)
        monkeypatch.setattr(MerlinsLoader, "make_tensors", recorded)
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
@pytest.mark.parametrize(("ragged", "memory"), [(True, 0), (False, 100)])
@pytest.mark.slow
def test_batches_of_each_rank_are_those_of_the_cpu(tmp_path, gpu, ragged, memory, eagerly):
    files = write_files(tmp_path, [[7, 30, 0, 3], [15, 6]], ragged=ragged)
    dataset = open_dataset(files, ragged=ragged)
    options = {"shuffle": ragged, "seed": 5, "window_rows": 24, "data_memory_mb": memory}

    def loaders():
        return [RowLoader(dataset, 4, global_size=3, global_rank=r, **options) for r in range(3)]

    by_rank = [collect(loader) for loader in loaders()]
    assert {len(batches[-1][1]) for batches in by_rank} == {0, 1}, "the last step has one row"
    read = gpu()
    for expected, loader in zip(by_rank, loaders(), strict=True):
        received = collect(loader)
        assert_same(expected, received)
        loader.start_at(0, 3)
        assert_same(expected[3:], collect(loader))
    kinds = {received[0][0][name].dtype for name in ("item", "history")}
    assert kinds == {np.dtype(np.int64)}, "a type that stays on the device"
    assert len(read) == 5 or (len(read) > 5 and not memory)  # by Merlin's loader


def test_a_gpu_has_a_kernel_for_all_that_is_as_large_as_a_batch(tmp_path, gpu):
    dataset = open_dataset(write_files(tmp_path, [[70]]))
    gpu()
    loader = RowLoader(dataset, 32, shuffle=True)
    make = tf.function(loader.make, autograph=False)
    graph = make.get_concrete_function(next(loader.inputs())).graph
    assert without_gpu_kernel(graph, at_least=10) == []


def test_what_lies_before_the_first_step_is_not_read(tmp_path, gpu):
    dataset = open_dataset(write_files(tmp_path, [[8, 8, 8], [8, 8, 8]]))
    read = gpu()
    loader = RowLoader(dataset, 8, window_rows=16, data_memory_mb=0)
    loader.start_at(0, 4)
    assert len(collect(loader)) == 2
    assert read == [1, 2]


@pytest.mark.timeout(60)
def test_a_thread_of_merlins_loader_that_ends_late_is_not_waited_for(tmp_path, gpu, slow_threads):
    dataset = open_dataset(write_files(tmp_path, [[8, 8]]))
    expected = collect(RowLoader(dataset, 8))
    gpu()
    slow_threads()
    assert_same(expected, collect(RowLoader(dataset, 8, data_memory_mb=0)))


@pytest.mark.filterwarnings("error:.*were read on the host")
def test_merlins_loader_reads_each_row_group_once(tmp_path, gpu, monkeypatch):
    """Nobody asks for its length, as ``list`` does: it would begin to read anew."""
    read = gpu()

    def length(self):
        raise AssertionError

    monkeypatch.setattr(MerlinsLoader, "__len__", length)
    collect(RowLoader(open_dataset(write_files(tmp_path, [[8, 8]])), 8))
    assert read == [0, 1]


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

    monkeypatch.setattr(MerlinsLoader, "make_tensors", fail)
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

    def fail(*arguments):
        raise MemoryError("Unable to allocate 3.00 GiB")

    monkeypatch.setattr(row_loader, "pad_left", fail)
    with pytest.raises(MemoryError, match="^Unable to allocate"):
        collect(RowLoader(dataset, 4))
