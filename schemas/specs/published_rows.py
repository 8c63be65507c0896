"""The rows of a parquet file in the published layout, checked against their columns' types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...foundation.problem import Problem
from ..parquet.footer import UNREADABLE, why
from ..parquet.row_pieces import file_pieces

ROWS_AT_ONCE = 65_536

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PublishedColumns:
    """What each column of the layout is."""

    label: str
    """The label's column."""

    single: dict[str, int]
    """Columns with one id a row -> their cardinality."""

    histories: dict[str, int]
    """List columns -> their cardinality."""


@dataclass(frozen=True)
class FileCheck:
    """What came of checking one file."""

    problems: list[Problem]
    """The first fault of each column that has one."""

    longest: int
    """The longest history."""

    rows: int
    """How many rows the file has."""


def check_rows(file: Path, columns: PublishedColumns) -> FileCheck:
    """Check every row of a file; it has the right columns of the right types.

    Labels are 0 or 1; ids run from 1 to the cardinality; the histories of a row have one length;
    in a history 0 only pads, on the left.
    """
    faults: dict[str, Problem] = {}
    longest, row = 0, 0
    try:
        with pq.ParquetFile(file) as parquet:
            for batch in file_pieces(parquet, parquet.schema_arrow.names, ROWS_AT_ONCE):
                for name, bad, expected, received in _faults(batch, columns):
                    where = f"row {row + bad + 1}"
                    faults.setdefault(name, Problem(str(file), (name, where), expected, received))
                longest = max(longest, _longest(batch, columns))
                row += batch.num_rows
    except UNREADABLE as error:
        reason = f"after row {row}: {why(error)}"
        faults[""] = Problem(str(file), (), "a whole parquet file", reason)
    return FileCheck(list(faults.values()), longest, row)


def _longest(batch: pa.RecordBatch, columns: PublishedColumns) -> int:
    lengths = [pc.max(pc.list_value_length(batch.column(name))) for name in columns.histories]
    return max((length.as_py() or 0 for length in lengths), default=0)


def _faults(
    batch: pa.RecordBatch, columns: PublishedColumns
) -> Iterator[tuple[str, int, str, str]]:
    """Yield (column, row, expected, received) for the first bad row of each bad column."""
    nulls = {name for name in batch.schema.names if batch.column(name).null_count}
    for name in nulls:
        first = int(np.argmax(batch.column(name).is_null().to_numpy(False)))
        yield name, first, "a value", "nothing"
    if columns.label not in nulls:
        labels = pc.cast(batch.column(columns.label), pa.float64()).to_numpy(False)
        bad = (labels != 0) & (labels != 1)
        if bad.any():
            first = int(np.argmax(bad))
            yield columns.label, first, "0 or 1", f"{labels[first]:g}"
    for name, cardinality in columns.single.items():
        if name not in nulls:
            ids = batch.column(name).to_numpy(False)
            bad = (ids < 1) | (ids > cardinality)
            if bad.any():
                first = int(np.argmax(bad))
                yield name, first, f"an id from 1 to {cardinality}", str(ids[first])
    lengths: Array | None = None
    for name, cardinality in columns.histories.items():
        if name in nulls:
            continue
        ours = pc.list_value_length(batch.column(name)).to_numpy(False)
        lengths = ours if lengths is None else lengths
        if (ours != lengths).any():
            first = int(np.argmax(ours != lengths))
            received = f"{ours[first]} entries, not {lengths[first]}"
            yield name, first, "a list as long as the row's other histories", received
        yield from _history_faults(name, batch.column(name), cardinality)


def _history_faults(
    name: str, column: pa.Array, cardinality: int
) -> Iterator[tuple[str, int, str, str]]:
    values = pc.list_flatten(column)
    rows = pc.list_parent_indices(column).to_numpy(False)
    if values.null_count:
        yield name, int(rows[np.argmax(values.is_null().to_numpy(False))]), "ids", "nothing"
        return
    ids = values.to_numpy(False)
    outside = (ids < 0) | (ids > cardinality)
    if outside.any():
        first = int(np.argmax(outside))
        yield name, int(rows[first]), f"ids from 0 to {cardinality}", str(ids[first])
        return
    pads_late = (ids[1:] == 0) & (ids[:-1] != 0) & (rows[1:] == rows[:-1])
    if pads_late.any():
        first = int(np.argmax(pads_late))
        yield name, int(rows[first]), "padding on the left only", f"0 after {ids[first]}"
