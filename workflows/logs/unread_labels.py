"""Columns that look like labels or behaviours in a log that is read without them."""

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
BEHAVIOURS = {
    "behaviour", "behavior", "behaviour_type", "behavior_type", "event", "event_type", "event_name",
    "action", "action_type", "interaction_type",
}  # fmt: skip
"""What columns of behaviours are called."""
MOST_BEHAVIOURS = 20


def unread_labels(log: TableLog) -> list[str]:
    """Name the columns that are called like labels and hold 0 and 1, and are not read.

    Looks at the beginning of the first file alone. What is wrong with a file is left to those who
    read all of it: they know the row.
    """
    return [name for name, values in _unread(log, NAMES).items() if _are_labels(values)]


def unread_behaviours(log: TableLog) -> dict[str, list[str]]:
    """Name the columns that are called like behaviours and have several, and are not read.

    See :func:`unread_labels`.

    Returns:
        Column -> the behaviours at the beginning of the log.
    """
    found = {}
    for name, values in _unread(log, BEHAVIOURS).items():
        if not can_be_label(values.type) or pa.types.is_floating(values.type):
            continue
        keys = pc.unique(values).drop_null().to_pylist()
        if 1 < len(keys) <= MOST_BEHAVIOURS:
            shown = (k.decode("utf-8", "replace") if isinstance(k, bytes) else str(k) for k in keys)
            found[name] = sorted(shown)
    return found


def _unread(log: TableLog, names: set[str]) -> dict[str, Any]:
    """The first values of columns that are called so and are not read."""
    path = log.first_file
    try:
        has = header_of(path) if is_csv(path) else read_footer(path)[1].names
        asked = [name for name in has if name.lower() in names and name not in log.columns.log]
        return _first_values(path, asked) if asked else {}
    except (UnreadableFooter, *UNREADABLE):
        return {}


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
