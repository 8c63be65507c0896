"""Columns that look like labels in a log that is read without them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...schemas.parquet.footer import UNREADABLE, UnreadableFooter, read_footer
from .csv_file import CsvReader, header_of, is_csv
from .table_columns import can_be_label, labels_of
from .table_log import TableLog

NAMES = {
    "label", "labels", "target", "click", "clicks", "clicked", "clk", "is_click", "is_clicked",
    "isclick", "has_clicked", "converted", "conversion", "is_converted", "purchased", "bought",
    "is_bought", "is_purchased", "liked", "is_like", "y",
}  # fmt: skip
"""What columns of labels are called, in small letters."""


def unread_labels(log: TableLog) -> list[str]:
    """Name the columns that are called like labels and hold 0 and 1, and are not read.

    Looks at the beginning of the first file alone. What is wrong with a file is left to those who
    read all of it: they know the row.
    """
    path = Path(log.files[0])
    try:
        names = header_of(path) if is_csv(path) else read_footer(path)[1].names
        asked = [name for name in names if name.lower() in NAMES and name not in log.columns.log]
        values = _first_values(path, asked) if asked else {}
    except (UnreadableFooter, *UNREADABLE):
        return []
    return [name for name in asked if _are_labels(values[name])]


def _first_values(path: Path, names: list[str]) -> dict[str, Any]:
    if is_csv(path):
        with CsvReader(path, names, []) as reader:
            batches = [batch for batch, _ in itertools.islice(reader.batches(), 1)]
        table = pa.Table.from_batches(batches) if batches else pa.table(dict.fromkeys(names, []))
    else:
        with pq.ParquetFile(path) as opened:
            groups = range(min(1, opened.num_row_groups))
            table = opened.read_row_groups(list(groups), columns=names)
    return {name: table[name].combine_chunks() for name in names}


def _are_labels(values: pa.Array) -> bool:
    if not len(values) or not can_be_label(values.type):
        return False
    return bool(pc.all(pc.is_valid(labels_of(values))).as_py())
