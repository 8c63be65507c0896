"""The files of a chunk, of any type, read as a stream of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ...foundation.exceptions import MerlinSimError
from ...schemas.dtypes import canonical_dtype
from ...schemas.parquet.footer import UNREADABLE, why
from ...schemas.parquet.row_pieces import file_pieces
from ...schemas.specs.feature_spec import Chunk, Feature
from ...schemas.stored_types import type_in_words, value_type
from .chunk_rows import ChunkRows
from .split_binary import SPLIT_BINARY, read_split_binary

ROWS_AT_ONCE = 16_384


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
    """Read a chunk's files one after the other.

    Args:
        directory: Where its paths start.
        chunk: The chunk.
        features: The dataset's features.
    """
    types = pa.schema([(name, arrow_type(name, features[name])) for name in chunk.features])
    for file in chunk.files:
        path = directory / file
        first = 1
        for table in _tables(path, chunk.type, types, features):
            rows = ChunkRows(table, path, first)
            yield ChunkRows(_cast(rows, types), path, first)
            first += table.num_rows


def count_chunk_rows(directory: Path, chunk: Chunk, features: Mapping[str, Feature]) -> int:
    """Say how many rows a chunk has; only of parquet is that known without reading it."""
    if chunk.type != "parquet":
        return sum(rows.table.num_rows for rows in read_chunk(directory, chunk, features))
    rows = 0
    for file in chunk.files:
        with _opened(directory / file) as parquet:
            rows += parquet.metadata.num_rows
    return rows


def _tables(
    path: Path, kind: str, types: pa.Schema, features: Mapping[str, Feature]
) -> Iterator[pa.Table]:
    if kind == "csv":
        yield from _csv_tables(path, types)
    elif kind == "parquet":
        yield from _parquet_tables(path, types)
    elif kind == SPLIT_BINARY:
        yield from read_split_binary(path, types.names, features)
    elif kind == "tfrecord":
        from .tfrecord_file import read_tfrecord  # imports TensorFlow

        yield from read_tfrecord(path, types, features)
    else:
        raise MerlinSimError(f"{path}: chunks of type {kind!r} cannot be read.")


def _csv_tables(path: Path, types: pa.Schema) -> Iterator[pa.Table]:
    lists = [field.name for field in types if pa.types.is_list(field.type)]
    if lists:
        raise MerlinSimError(
            f"{path}: csv holds single values, but the chunk has the lists {', '.join(lists)}."
        )
    if path.stat().st_size == 0:
        return
    # Truth values stand in csv as 0 and 1.
    columns = {
        field.name: pa.int8() if pa.types.is_boolean(field.type) else field.type for field in types
    }
    try:
        with pa.csv.open_csv(
            path,
            read_options=pa.csv.ReadOptions(column_names=types.names, use_threads=False),
            convert_options=pa.csv.ConvertOptions(column_types=columns, null_values=[""]),
        ) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])
    except pa.ArrowInvalid as error:
        raise MerlinSimError(_told(path, str(error), types.names)) from error


def _told(path: Path, problem: str, names: list[str]) -> str:
    """Name row and feature of what arrow could not convert; it counts columns from 0."""
    found = re.fullmatch(r"In CSV column #(\d+): Row #(\d+): CSV conversion error (.*)", problem)
    if found is None:
        return f"{path}: {problem}."
    column, row, why = found.groups()
    return f"{path}, row {row}: {names[int(column)]}: cannot be converted {why}."


def _parquet_tables(path: Path, types: pa.Schema) -> Iterator[pa.Table]:
    with _opened(path) as file:
        _require_numbers(path, file.schema_arrow, types.names)
        for batch in file_pieces(file, types.names, ROWS_AT_ONCE):
            yield pa.Table.from_batches([batch]).select(types.names)


def _require_numbers(path: Path, stored: pa.Schema, names: list[str]) -> None:
    """Refuse what is not there once, and what is not a number, text of digits among it."""
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
        if not any(test(kind) for test in tests):
            found = type_in_words(stored.field(name).type)
            raise MerlinSimError(f"{path}: {name}: expected numbers, found {found}.")


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except UNREADABLE as error:
        raise MerlinSimError(f"{path}: cannot be read as parquet ({why(error)}).") from error


def _cast(rows: ChunkRows, types: pa.Schema) -> pa.Table:
    """Give every column the type of its feature; nulls and numbers that do not fit are refused."""
    columns = []
    for field in types:
        column = rows.table[field.name].combine_chunks()
        try:
            columns.append(_cast_column(column, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            row = _first_failing(column, field.type)
            found = f"{column[row].as_py()!r:.80}" if len(column) else str(column.type)
            raise MerlinSimError(
                f"{rows.where(row)}: {field.name}: expected {field.type}, found {found} ({error})."
            ) from error
    return pa.table(columns, types)


def _cast_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    is_list = pa.types.is_list(kind)
    if column.null_count or (is_list and _leaves(column).null_count):
        raise pa.ArrowInvalid("there is no value")
    if pa.types.is_boolean(kind) and not pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
        if any(value not in (0, 1) for value in column.unique().to_pylist()):
            raise pa.ArrowInvalid("expected 0 or 1")
    return column.cast(kind)


def _leaves(column: Any) -> pa.Array:
    return column.flatten() if pa.types.is_nested(column.type) else column


def _first_failing(column: pa.Array, kind: pa.DataType) -> int:
    """The first row that cannot be cast, by halving."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _cast_column(column.slice(low, middle - low), kind)
            low = middle
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            high = middle
    return low
