"""The feed of a dataset directory: the files that its spec names, in the order in which it does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_logs import write_sim_dataset

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.dataset import DatasetDirectory

COLUMNS = ["clicked", "who", "thing"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    directory = tmp_path_factory.mktemp("ordered") / "dataset"
    return DatasetDirectory.open(write_sim_dataset(directory, (20, 30, 10), (5,)))


def with_files(dataset, names):
    """Give the dataset with these names as its train files, in this order."""
    (chunk,) = dataset.spec.source_spec["train"]
    sources = {**dataset.spec.source_spec, "train": (replace(chunk, files=tuple(names)),)}
    return replace(dataset, spec=replace(dataset.spec, source_spec=sources))


def fed(dataset, ranks=1):
    """The rows of a stored epoch, step by step, each step's over all ranks."""
    feeds = [
        open_loader(dataset, "train", COLUMNS, 6 * ranks, Ranks(rank, ranks))
        for rank in range(ranks)
    ]
    steps = zip(*feeds, strict=True)
    rows = [
        np.column_stack([labels.numpy().ravel(), *(inputs[name] for name in COLUMNS[1:])])
        for step in steps
        for inputs, labels in step
    ]
    return np.concatenate(rows)


def stored(dataset):
    tables = [pq.ParquetFile(file).read(COLUMNS) for file in dataset.files("train")]
    return np.column_stack([pa.concat_tables(tables)[name].to_numpy() for name in COLUMNS])


@pytest.mark.parametrize(
    "names",
    [
        ["train/part.2.parquet", "train/part.0.parquet", "train/part.1.parquet"],
        ["train/part.0.parquet", "train/../train/part.1.parquet", "train/part.2.parquet"],
        ["train/part.1.parquet", "./train/part.2.parquet", "train/part.0.parquet"],
    ],
    ids=["out of natural order", "with dots", "with a dot"],
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_files_are_read_in_the_order_of_the_spec(dataset, names, ranks):
    reordered = with_files(dataset, names)
    np.testing.assert_array_equal(fed(reordered, ranks), stored(reordered))


def test_a_name_is_no_pattern(dataset):
    train = dataset.path / "train"
    for name in ("part[01].parquet", "part?.parquet", "part*.parquet"):
        (train / name).write_bytes((train / "part.1.parquet").read_bytes())
        alone = with_files(dataset, [f"train/{name}"])
        np.testing.assert_array_equal(fed(alone), stored(alone))
    both = with_files(dataset, ["train/part*.parquet", "train/part.0.parquet"])
    np.testing.assert_array_equal(fed(both), stored(both))
