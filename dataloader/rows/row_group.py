"""Decodes a row group piece by piece: each list column by itself, all other columns together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from ...schemas.parquet.row_pieces import row_pieces
from ...schemas.stored_types import is_list
from ..data_error import DamageError
from .decoded_rows import Column, ListColumn, decode
from .footer import leaf_fields

CHUNK_ROWS = 16384
"""Row groups longer than this are decoded piece by piece, so that memory stays bounded."""


class ColumnsReader(Protocol):
    """Some of the columns of a row group, from its first row to its last."""

    def read(self, rows: int) -> dict[str, Column]:
        """Decode the next ``rows`` rows.

        Raises:
            DamageError: where so many are not there, or not what the file promises of them.
        """
        ...

    def finish(self) -> None:
        """Refuse a row group that has more rows than were read.

        Raises:
            DamageError: where there are more.
        """
        ...


def column_readers(
    file: pq.ParquetFile, path: str, group: int, columns: list[str]
) -> list[ColumnsReader]:
    """Open ``columns`` of a row group, in parts that threads can decode side by side.

    Args:
        file: the opened file.
        path: where it lies; if it is not local, all columns are read together.
        group: the row group.
        columns: their names.
    """
    schema = file.schema_arrow
    lists = [name for name in columns if is_list(schema.field(name).type)]
    if not Path(path).is_file():
        return [_ArrowReader(file, group, columns, use_threads=True)]
    readers: list[ColumnsReader] = []
    for name in lists:
        own = pq.ParquetFile(path, metadata=file.metadata, memory_map=True)
        readers.append(_ArrowReader(own, group, [name]))
    others = [name for name in columns if name not in lists]
    if others:
        readers.append(_ArrowReader(file, group, others, use_threads=not lists))
    return readers


class _ArrowReader:
    """Columns as arrow decodes them."""

    def __init__(
        self, file: pq.ParquetFile, group: int, columns: list[str], use_threads: bool = False
    ) -> None:
        self._batches = row_pieces(file, group, columns, CHUNK_ROWS, use_threads)
        self._columns = columns
        self._promised = _promised_bounds(file, group, columns)
        self._rest: pa.RecordBatch | None = None

    def read(self, rows: int) -> dict[str, Column]:
        batches = list(self._take(rows))
        table = batches[0] if len(batches) == 1 else pa.Table.from_batches(batches)
        decoded = decode(table.select(self._columns), "", 0)  # a.b comes where a is asked for
        return {name: self._within_bounds(name, c) for name, c in decoded.columns.items()}

    def finish(self) -> None:
        if self._rest is not None or next(self._batches, None) is not None:
            raise DamageError("there are more rows than were announced")

    def _take(self, rows: int) -> Iterator[pa.RecordBatch]:
        while rows:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            if batch is None:
                raise DamageError(f"{rows} rows are missing")
            taken = batch.slice(0, rows)
            self._rest = batch.slice(rows) if rows < batch.num_rows else None
            rows -= taken.num_rows
            yield taken

    def _within_bounds(self, name: str, column: Column) -> Column:
        """Hold a history against what the file promises, and note its own bounds."""
        if name not in self._promised or not isinstance(column, ListColumn):
            return column
        if column.missing is not None or not len(column.values):
            return column
        low, high = self._promised[name]
        found = column.values.min(), column.values.max()
        if found[0] < low or found[1] > high:
            raise DamageError(
                f"column {name} has values of {found[0]} to {found[1]} where the file promises"
                f" {low} to {high}"
            )
        return replace(column, bounds=found)


def _promised_bounds(
    file: pq.ParquetFile, group: int, columns: list[str]
) -> dict[str, tuple[Any, Any]]:
    """Name the lists of whole numbers of which the file tells the smallest and the largest."""
    metadata, schema = file.metadata.row_group(group), file.schema_arrow
    bounds = {}
    for index, name in enumerate(leaf_fields(file)):
        kind = schema.field(name).type if name in columns else None
        if kind is None or not is_list(kind) or not pa.types.is_signed_integer(kind.value_type):
            continue
        chunk = metadata.column(index)
        statistics = chunk.statistics if chunk.is_stats_set else None
        if statistics is not None and statistics.has_min_max:
            bounds[name] = statistics.min, statistics.max
    return bounds
