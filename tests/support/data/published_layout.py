"""Writes a small dataset in the published parquet layout: train/, test/, metadata.json, no spec."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = ["label", "user_id", "item_id_trgt", "cat_id_trgt"] + [
    "item_id_pos",
    "cat_id_pos",
    "item_id_neg",
    "cat_id_neg",
]
CARDINALITIES = {"user_id": 9, "item_id": 50, "cat_id": 7}


def table(rows: int, seed: int, *, length: int = 6, padded: bool = False) -> pa.Table:
    """Make rows in the published order of columns; ragged histories unless ``padded``."""
    chance = np.random.default_rng(seed)
    lengths = chance.integers(0, length + 1, rows)

    def ids(domain, size=None):
        return chance.integers(1, CARDINALITIES[domain] + 1, size)

    def histories(domain):
        lists = [ids(domain, count) for count in lengths]
        if padded:
            lists = [np.concatenate([np.zeros(length - len(x), np.int64), x]) for x in lists]
        return pa.array(lists, pa.list_(pa.int64()))

    arrays = [pa.array(chance.integers(0, 2, rows), pa.int8()), pa.array(ids("user_id", rows))]
    arrays += [pa.array(ids("item_id", rows)), pa.array(ids("cat_id", rows))]
    arrays += [histories(domain) for domain in ("item_id", "cat_id", "item_id", "cat_id")]
    return pa.table(arrays, names=COLUMNS)


def write(directory: Path, *, padded: bool = False, rows: int = 40) -> Path:
    """Write two files of train (numbered 2 and 10) and one of test."""
    for mapping, numbers in (("train", (2, 10)), ("test", (0,))):
        (directory / mapping).mkdir(parents=True)
        for number in numbers:
            file = directory / mapping / f"part.{number}.parquet"
            pq.write_table(table(rows, number, padded=padded), file, row_group_size=16)
    entries = [{"name": name, "value": value} for name, value in CARDINALITIES.items()]
    (directory / "metadata.json").write_text(json.dumps({"cardinalities": entries}))
    return directory
