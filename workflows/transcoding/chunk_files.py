"""The files of a chunk, of any type, read as a stream of rows; chunks of a mapping side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ...dataloader.arrow_columns import decode
from ...foundation.exceptions import MerlinSimError
from ...schemas.dtypes import canonical_dtype
from ...schemas.feature_spec import Chunk, Feature
from ...schemas.parquet import UNREADABLE, file_pieces, type_in_words, value_type, why
from .split_binary import SPLIT_BINARY, read_split_binary

ROWS_AT_ONCE = 16_384
DOES_NOT_FIT = (pa.ArrowInvalid, pa.ArrowNotImplementedError)


@dataclass(frozen=True)
class ChunkRows:
    """Some rows of one file."""

    table: pa.Table
    path: Path
    first: int
    """The number of the first row in the file, from 1."""

    def slice(self, first: int, count: int | None = None) -> ChunkRows:
        """Return ``count`` rows from ``first`` (from 0) on; None for all of them."""
        return ChunkRows(self.table.slice(first, count), self.path, self.first + first)

    def where(self, row: int) -> str:
        """Name a row of the table (from 0) as a message does."""
        return f"{self.path}, row {self.first + row}"

    def require(
        self,
        name: str,
        good: npt.NDArray[np.bool_],
        expected: str,
        found: npt.NDArray[Any] | None = None,
    ) -> None:
        """Refuse a column's first value that is not good, with its row.

        Of a column of lists, ``good`` has the entries of all lists, unless ``found`` has for each
        row what the message reports.
        """
        if good.all():
            return
        row = index = int(np.argmin(good))
        if found is None:
            column = decode(self.table[name])
            found, row = column.values, column.row_of(index)
        raise MerlinSimError(
            f"{self.where(row)}: {name}: expected {expected}, found {found[index]}."
        )


def arrow_type(name: str, feature: Feature) -> pa.DataType:
    """The type that a feature's values have in parquet."""
    dtype = canonical_dtype(feature.dtype)
    if dtype is None or dtype in ("str", "object", "bfloat16") or dtype.startswith("datetime"):
        raise MerlinSimError(
            f"feature_spec.{name}.dtype: expected numbers or truth values, found {feature.dtype}."
        )
    # Parquet has no float16.
    stored = "float32" if dtype == "float16" else dtype
    value = pa.bool_() if dtype == "bool" else pa.from_numpy_dtype(stored)
    return value if feature.dimensions is None else pa.list_(value)


def read_chunk(
    directory: Path, chunk: Chunk, features: Mapping[str, Feature]
) -> Iterator[ChunkRows]:
    """Read a chunk's files one after the other."""
    types = pa.schema([(name, arrow_type(name, features[name])) for name in chunk.features])
    for file in chunk.files:
        path = directory / file
        first = 1
        for table in _read_tables(path, chunk.type, types, features):
            rows = ChunkRows(table, path, first)
            yield ChunkRows(_cast(rows, types), path, first)
            first += table.num_rows


def _read_tables(
    path: Path, kind: str, types: pa.Schema, features: Mapping[str, Feature]
) -> Iterator[pa.Table]:
    if kind == "csv":
        return _read_csv(path, types)
    if kind == "parquet":
        return _read_parquet(path, types)
    if kind == SPLIT_BINARY:
        return read_split_binary(path, types.names, features)
    if kind == "tfrecord":
        from .tfrecord import read_tfrecord  # imports TensorFlow

        return read_tfrecord(path, types, features)
    raise MerlinSimError(f"{path}: chunks of type {kind!r} cannot be read.")


def _read_csv(path: Path, types: pa.Schema) -> Iterator[pa.Table]:
    lists = [field.name for field in types if pa.types.is_list(field.type)]
    if lists:
        raise MerlinSimError(
            f"{path}: csv holds single values, but the chunk has the lists {', '.join(lists)}."
        )
    if path.stat().st_size == 0:
        return
    # Truth values are 0 and 1 in csv.
    stored = {
        field.name: pa.int8() if pa.types.is_boolean(field.type) else field.type for field in types
    }
    try:
        with pa.csv.open_csv(
            path,
            read_options=pa.csv.ReadOptions(column_names=types.names, use_threads=False),
            parse_options=pa.csv.ParseOptions(ignore_empty_lines=False),
            convert_options=pa.csv.ConvertOptions(column_types=stored, null_values=[""]),
        ) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])
    except pa.ArrowInvalid as error:
        pattern = r"In CSV column #(\d+): Row #(\d+): CSV conversion error (.*)"
        found = re.fullmatch(pattern, str(error))
        if found is None:
            raise MerlinSimError(f"{path}: {error}.") from error
        column, row, reason = found.groups()  # arrow counts columns from 0
        raise MerlinSimError(
            f"{path}, row {row}: {types.names[int(column)]}: cannot be converted {reason}."
        ) from error


def _read_parquet(path: Path, types: pa.Schema) -> Iterator[pa.Table]:
    try:
        with pq.ParquetFile(path) as file:
            _require_numbers(path, file.schema_arrow, types.names)
            for batch in file_pieces(file, types.names, ROWS_AT_ONCE):
                yield pa.Table.from_batches([batch]).select(types.names)
    except UNREADABLE as error:
        raise MerlinSimError(f"{path}: cannot be read as parquet ({why(error)}).") from error


def _require_numbers(path: Path, stored: pa.Schema, names: list[str]) -> None:
    """Refuse columns that are missing or twice there, and those that hold no numbers."""
    missing = [name for name in names if name not in stored.names]
    if missing:
        raise MerlinSimError(
            f"{path}: expected the columns {', '.join(missing)}, found only "
            f"{', '.join(stored.names)}."
        )
    for name in names:
        if stored.names.count(name) > 1:
            raise MerlinSimError(f"{path}: expected one column {name}, found more.")
        kind = value_type(stored.field(name).type)
        tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
        if not any(test(kind) for test in tests):  # text of digits is none
            found = type_in_words(stored.field(name).type)
            raise MerlinSimError(f"{path}: {name}: expected numbers, found {found}.")


def _cast(rows: ChunkRows, types: pa.Schema) -> pa.Table:
    """Give every column the type of its feature; nulls and numbers that do not fit are refused."""
    columns = []
    for field in types:
        column = rows.table[field.name].combine_chunks()
        try:
            columns.append(_cast_column(column, field.type))
        except DOES_NOT_FIT as error:
            singles = (column.slice(row, 1) for row in range(len(column)))
            row = next((n for n, one in enumerate(singles) if not _fits(one, field.type)), 0)
            found = f"{column[row].as_py()!r:.80}" if len(column) else str(column.type)
            raise MerlinSimError(
                f"{rows.where(row)}: {field.name}: expected {field.type}, found {found} ({error})."
            ) from error
    return pa.table(columns, types)


def _cast_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    entries = column.flatten() if pa.types.is_nested(column.type) else column
    if column.null_count or entries.null_count:
        raise pa.ArrowInvalid("there is no value")
    if pa.types.is_boolean(kind) and not pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
        if any(value not in (0, 1) for value in column.unique().to_pylist()):
            raise pa.ArrowInvalid("expected 0 or 1")
    return column.cast(kind)


def _fits(column: pa.Array, kind: pa.DataType) -> bool:
    try:
        _cast_column(column, kind)
    except DOES_NOT_FIT:
        return False
    return True


def line_up(chunks: list[Iterator[ChunkRows]]) -> Iterator[list[ChunkRows]]:
    """Walk through chunks side by side, as many rows of each; refuse one that ends early."""
    waiting: list[ChunkRows | None] = [None] * len(chunks)
    ends = ["without a row"] * len(chunks)
    while True:
        for number, chunk in enumerate(chunks):
            if waiting[number] is None:
                waiting[number] = next((rows for rows in chunk if rows.table.num_rows), None)
        present = [rows for rows in waiting if rows is not None]
        if not present:
            return
        if len(present) < len(chunks):
            ended = waiting.index(None)
            raise MerlinSimError(
                f"The chunks of a mapping should have the same rows, but chunk {ended} ends "
                f"{ends[ended]}, while another goes on at {present[0].where(0)}."
            )
        count = min(rows.table.num_rows for rows in present)
        yield [rows.slice(0, count) for rows in present]
        ends = [f"after {rows.where(count - 1)}" for rows in present]
        waiting = [rows.slice(count) if rows.table.num_rows > count else None for rows in present]
