"""A click dataset in which a page says that it has fewer values than its row group has rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from attack.good_datasets import Good, make_table

FILE = "train/part.1.parquet"
ROWS, DEVICES = 108, 44
"""Rows of the file, and what is left of its column `device`."""
OFFSET = 9
"""Of the byte of the page's header that has the higher bits of how many values there are."""


def write_damaged(directory: Path) -> Path:
    """Write it; gives the damaged file."""
    rows = {"train/part.0.parquet": 1, FILE: ROWS, "test/part.0.parquet": 2}
    Good("clicks", {name: make_table("clicks", n, 5) for name, n in rows.items()}, {}).write(
        directory
    )
    path = directory / FILE
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    (device,) = (column for column in columns if column.path_in_schema == "device")
    content = bytearray(path.read_bytes())
    content[device.data_page_offset + OFFSET] ^= 1
    path.write_bytes(content)
    assert pq.ParquetFile(path).read_row_group(0, columns=["device"]).num_rows == DEVICES
    return path
