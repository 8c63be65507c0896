"""A click dataset in which a page says that it has fewer values than its row group has rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from attack.datasets.dataset_family import DatasetFamily
from attack.plan import Mutation, Plan

FILE = "train/part.1.parquet"
ROWS, DEVICES = 108, 44
"""Rows of the file, and what is left of its column `device`."""
FLIPPED = {"file": FILE, "place": "pages", "change": "flip", "at": 525660760, "count": 6}
CASE = Plan(
    {"seed": 559770635, "padded": False, "sizes": {"rows": [1, ROWS, 1], "group": ROWS}},
    (Mutation("damage", {**FLIPPED, "value": 144}),),
)


def write_damaged(directory: Path) -> Path:
    """Write it; gives the damaged file."""
    DatasetFamily("clicks").write(CASE, directory)
    column = pq.ParquetFile(directory / FILE).read_row_group(0, columns=["device"])
    assert column.num_rows == DEVICES
    return directory / FILE
