"""Small parquet directories of made-up logs for the training tests."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from merlin.io import Dataset
from merlin.schema import ColumnSchema, Schema, Tags

LONGEST = 6
CARDINALITY = 40


def make_schema(ragged: bool = True) -> Schema:
    counts = {"min": 0 if ragged else LONGEST, "max": LONGEST}
    domain = {"min": 0, "max": CARDINALITY, "name": "item_id"}

    def ids(name, **properties):
        properties["domain"] = domain
        return ColumnSchema(
            name,
            tags=[Tags.CATEGORICAL],
            dtype=np.int64,
            is_list="value_count" in properties,
            properties=properties,
        )

    label = ColumnSchema(
        "label", tags=[Tags.TARGET, Tags.BINARY_CLASSIFICATION], dtype=np.float32
    )
    return Schema([label, ids("row"), ids("item"), ids("history", value_count=counts)])


def make_table(rows: int, first: int = 0, ragged: bool = True, seed: int = 0) -> pa.Table:
    """Rows numbered from ``first`` in the column "row"; ids are unique to be counted."""
    random = np.random.default_rng([seed, first])
    lengths = random.integers(0, LONGEST + 1, rows)
    histories = [random.integers(1, CARDINALITY + 1, n).tolist() for n in lengths]
    if not ragged:
        histories = [[0] * (LONGEST - len(values)) + values for values in histories]
    return pa.table(
        {
            "label": pa.array(random.integers(0, 2, rows).astype(np.float32)),
            "row": pa.array(np.arange(first, first + rows)),
            "item": pa.array(random.integers(1, CARDINALITY + 1, rows)),
            "history": pa.array(histories, pa.list_(pa.int64())),
            "not_asked_for": pa.array([f"text {i}" for i in range(rows)], pa.string()),
        }
    )


def write_files(directory: Path, files: list[list[int]], ragged: bool = True) -> list[str]:
    """Write one file per entry, with row groups of the sizes that it lists."""
    directory.mkdir(parents=True, exist_ok=True)
    first = 0
    paths = []
    for number, groups in enumerate(files):
        path = str(directory / f"part.{number}.parquet")
        table = make_table(0)
        with pq.ParquetWriter(path, table.schema) as writer:
            for rows in groups:
                writer.write_table(make_table(rows, first, ragged), row_group_size=max(rows, 1))
                first += rows
        paths.append(path)
    return paths


def open_dataset(paths: list[str], ragged: bool = True, numbered: bool = True) -> Dataset:
    """Open files; with ``numbered`` the rows' numbers are not bounded by a table."""
    schema = make_schema(ragged)
    if numbered:
        plain = ColumnSchema("row", dtype=np.int64)
        schema = Schema([plain if column.name == "row" else column for column in schema])
    # Merlin samples the first row group for its size, and cannot where that one is empty.
    return Dataset(paths, engine="parquet", schema=schema, cpu=True, row_groups_per_part=1)


@pytest.fixture(autouse=True)
def two_threads():
    os.environ.setdefault("OMP_NUM_THREADS", "2")
