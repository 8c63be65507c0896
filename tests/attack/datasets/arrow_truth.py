"""What a dataset directory holds, read by arrow and PyYAML alone, row by row.

The feed is compared with this. It is slow and plain on purpose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .descriptions import Descriptions

Cell = Any
LARGEST_NUMBER = 3.4028234663852886e38
"""Numbers are fed as float32."""
NUMBERS = (
    "numerical", "user_numerical", "target_item_numerical", "history_time_intervals",
)  # fmt: skip
"""Channels of numbers."""
KINDS = {"label": [pa.float32(), pa.int8()], **dict.fromkeys(NUMBERS, [pa.float32()])}
"""Channel -> in which types its values are stored without a doubt; ids else."""


class Unreadable(Exception):
    """Arrow cannot read a file."""


@dataclass
class Truth:
    """The rows of one mapping, and what is wrong with them."""

    columns: dict[str, list[Cell]] = field(default_factory=dict)
    """Column -> a number, or a list of numbers, for each row."""

    wrong_rows: list[tuple[str, int, str]] = field(default_factory=list)
    """File, row (from 0) and fault of what must be refused."""

    wrong_files: list[tuple[str, str]] = field(default_factory=list)
    """File and fault where no row is at fault."""

    doubts: list[str] = field(default_factory=list)
    """What may be read, and may as well be refused."""

    @property
    def must_refuse(self) -> str:
        """The first fault; empty where there is none."""
        said = [f"{name}, row {row + 1}: {fault}" for name, row, fault in self.wrong_rows]
        return next(iter([*(f"{name}: {fault}" for name, fault in self.wrong_files), *said]), "")


def read_truth(directory: Path, mapping: str, facts: Descriptions) -> Truth:
    """Read all rows of a mapping."""
    truth = Truth(columns={name: [] for name in facts.columns})
    for name in facts.files[mapping]:
        try:
            _read_file(directory / name, name, facts, truth)
        except Unreadable as error:
            truth.wrong_files.append((name, str(error)))
    if not truth.wrong_files and not any(len(cells) for cells in truth.columns.values()):
        truth.wrong_files.append(("", "no rows"))
    return truth


def _read_file(path: Path, name: str, facts: Descriptions, truth: Truth) -> None:
    try:
        file = pq.ParquetFile(path)
        names = file.schema_arrow.names
        columns = {}
        for column in facts.columns:
            if names.count(column) != 1:
                raise Unreadable(f"{names.count(column)} columns {column!r}")
            if [name.partition("\0")[0] for name in names].count(column) != 1:
                truth.doubts.append(f"another name is {column!r} up to a zero byte")
            columns[column] = one_column(file, column)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Unreadable(f"{type(error).__name__}: {str(error)[:200]}") from error
    lengths = {len(array) for array in columns.values()}
    if len(lengths) > 1:
        raise Unreadable(f"columns of unequal lengths {sorted(lengths)}")
    for column, array in columns.items():
        truth.columns[column] += _cells(array, name, column, facts, truth)
    _compare_lengths(columns, name, facts, truth)


def one_column(file: pq.ParquetFile, column: str) -> pa.Array:
    """Read one column; arrow takes a dot in a name for a path and reads others along.

    Each row group is read by itself. Of a page that tells of more values than its row group has,
    arrow then takes those that belong there; of the whole file it loses rows of the next one.
    """
    table = _read_groups(file, [column])
    if column not in table.column_names:  # a name that arrow takes for a path of nested columns
        table = _read_groups(file, None)
    array = table.column(table.column_names.index(column))
    array.validate(full=True)
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    return array


def _read_groups(file: pq.ParquetFile, columns: list[str] | None) -> pa.Table:
    if not file.num_row_groups:
        return file.read(columns=columns, use_threads=False)
    groups = range(file.num_row_groups)
    return pa.concat_tables(
        file.read_row_group(group, columns=columns, use_threads=False) for group in groups
    )


def _cells(array: Any, name: str, column: str, facts: Descriptions, truth: Truth) -> list[Cell]:
    kind, feature = array.type, facts.features[column]
    if feature.is_list != is_list(kind):
        truth.wrong_files.append((name, f"{column} is stored as {kind}"))
        return [0] * len(array)
    value_kind = kind.value_type if feature.is_list else kind
    if pa.types.is_dictionary(value_kind):
        value_kind = value_kind.value_type
        truth.doubts.append(f"{column} is {kind}")
    if not _is_number(value_kind):
        truth.wrong_files.append((name, f"{column} is stored as {kind}"))
        return [0] * len(array)
    if value_kind not in KINDS.get(feature.channel, [pa.int64(), pa.int32()]):
        truth.doubts.append(f"{column} is {kind}")
    cells = array.to_pylist()
    for row, cell in enumerate(cells):
        fault = _fault_of(cell, feature, truth)
        if fault:
            truth.wrong_rows.append((name, row, f"{column}: {fault}"))
    return cells


def _fault_of(cell: Cell, feature: Any, truth: Truth) -> str:
    if cell is None:
        return "nothing"
    values = cell if feature.is_list else [cell]
    if feature.is_list and feature.channel == "target_item_numerical":
        if len(values) != feature.length:
            return f"a vector of {len(values)} numbers"
    elif feature.is_list and feature.length is not None and len(values) > feature.length:
        truth.doubts.append("a longer history")
    for value in values:
        if value is None:
            return "a missing element"
        if isinstance(value, float) and not math.isfinite(value):
            return f"{value}"
        if feature.channel == "label":
            if value not in (0, 1):
                return f"the label {value}"
        elif feature.channel in NUMBERS:
            if abs(value) > LARGEST_NUMBER:
                return f"{value} beyond float32"
        elif isinstance(value, float) and value != int(value):
            return f"the fraction {value}"
        elif feature.largest is not None and not 0 <= value <= feature.largest:
            return f"the id {value} beyond {feature.largest}"
    return ""


def _compare_lengths(columns: Any, name: str, facts: Descriptions, truth: Truth) -> None:
    for channel in ("positive_history", "negative_history"):
        channels = (channel, "history_time_intervals") if channel[0] == "p" else (channel,)
        found = [c for c in facts.columns if facts.features[c].channel in channels]
        lists = [columns[c].to_pylist() for c in found if is_list(columns[c].type)]
        for row, cells in enumerate(zip(*lists, strict=True)):
            if len({len(cell) for cell in cells if cell is not None}) > 1:
                truth.wrong_rows.append((name, row, f"{channel}: unequal lengths"))


def is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )
