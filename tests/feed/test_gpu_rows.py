"""The GPU's path of the feed, with pandas in cudf's place: there is no GPU here."""

from __future__ import annotations

import types

import numpy as np
import pandas as pd
import pytest
from small_logs import open_dataset, write_files

from merlin_sim.feed.loader import Loader


@pytest.fixture
def frames(monkeypatch):
    """A stand-in for cudf that reads row groups and joins frames as cudf does."""
    import pyarrow.parquet as pq

    def read_parquet(path, row_groups, columns):
        table = pq.ParquetFile(path).read_row_groups(row_groups[0], columns=columns)
        return table.to_pandas()

    library = types.SimpleNamespace(read_parquet=read_parquet, concat=pd.concat)
    return lambda: monkeypatch.setattr(Loader, "_frame_library", lambda self: library)


def collect(loader):
    return [
        ({name: tensor.numpy() for name, tensor in inputs.items()}, labels.numpy())
        for inputs, labels in loader
    ]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
def test_frames_give_the_batches_of_arrow(tmp_path, frames, shuffle, ragged):
    dataset = open_dataset(write_files(tmp_path, [[30, 11], [15]], ragged=ragged), ragged=ragged)
    options = {"shuffle": shuffle, "seed": 3, "window_rows": 16}
    expected = collect(Loader(dataset, 8, **options))
    frames()
    received = collect(Loader(dataset, 8, **options))
    assert len(expected) == len(received) == 7
    for (inputs, labels), (other, other_labels) in zip(expected, received, strict=True):
        np.testing.assert_array_equal(labels, other_labels)
        assert set(inputs) == set(other)
        for name in inputs:
            np.testing.assert_array_equal(inputs[name], other[name])


def test_a_rank_without_rows_in_the_last_step_gets_an_empty_batch(tmp_path, frames):
    dataset = open_dataset(write_files(tmp_path, [[9]]))
    frames()
    batches = collect(Loader(dataset, 4, global_size=2, global_rank=0))
    assert [len(labels) for _, labels in batches] == [4, 0]
    assert batches[1][0]["history__offsets"].tolist() == [0]
    assert set(batches[0][0]) == set(batches[1][0])
