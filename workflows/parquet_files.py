"""How samples are stored in parquet: what readers on CPU and GPU read fastest for its size."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from merlin.schema import Schema

from ..foundation.files import whole_file
from ..schemas.parquet import is_list

ROWS_PER_FILE = 131_072  # bounds the memory of a part: 1.6 KB a row at most, per list column
ROWS_PER_GROUP = 16_384
LARGEST_DICTIONARY = 1 << 16  # entries that still make a small page
# Ids of many items hardly repeat within a page, a dictionary of them costs only time. Delta
# encoding would be smaller still, but the cudf of the stack's GPU container cannot read it.
FAST_ZSTD = -3


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table that belongs to a dataset beside its rows; it is whole, or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as whole:
        pq.write_table(table, whole, compression="zstd", write_statistics=False)


def columns_with_few_ids(schema: Schema) -> list[str]:
    """Name the columns whose ids parquet should store as indices of a dictionary."""
    return [
        column.name
        for column in schema
        if column.int_domain is not None and column.int_domain.max < LARGEST_DICTIONARY
    ]


def write_samples_file(table: pa.Table, path: Path, few_ids: Collection[str] = ()) -> None:
    """Write one file of samples, whole however often; columns with ``few_ids`` get dictionaries."""
    layout = _layout(table.schema, set(few_ids))
    with whole_file(path) as whole:
        pq.write_table(table, whole, row_group_size=ROWS_PER_GROUP, **layout)


def _layout(schema: pa.Schema, few_ids: set[str]) -> dict[str, Any]:
    leaves = {f.name: f"{f.name}.list.element" if is_list(f.type) else f.name for f in schema}
    few = {leaves[name] for name in few_ids if name in leaves}
    return {
        "compression": {leaf: "none" if leaf in few else "zstd" for leaf in leaves.values()},
        "compression_level": {leaf: FAST_ZSTD for leaf in leaves.values() if leaf not in few},
        "use_dictionary": sorted(few),
        "write_statistics": False,
    }


class PartWriter:
    """Writes a stream of tables, in their order, as ``<mapping>/part.<n>.parquet``."""

    def __init__(self, directory: Path, mapping: str, few_ids: Collection[str] = ()) -> None:
        self.directory = directory
        self.mapping = mapping
        self.few_ids = set(few_ids)
        self.files: list[str] = []
        self._waiting: list[pa.Table] = []
        self._writer: pq.ParquetWriter | None = None
        self._in_file = 0
        (directory / mapping).mkdir()

    def write(self, table: pa.Table) -> None:
        """Take some rows."""
        self._waiting.append(table)
        while sum(part.num_rows for part in self._waiting) >= ROWS_PER_GROUP:
            waiting = pa.concat_tables(self._waiting)
            self._write_group(waiting.slice(0, ROWS_PER_GROUP))
            self._waiting = [waiting.slice(ROWS_PER_GROUP)]

    def close(self, schema: pa.Schema) -> None:
        """Write what waits; an empty file if there never was a row."""
        waiting = pa.concat_tables([*self._waiting, schema.empty_table()])
        if waiting.num_rows or not self.files:
            self._write_group(waiting)
        self._close_file()

    def _write_group(self, table: pa.Table) -> None:
        if self._writer is None:
            self.files.append(f"{self.mapping}/part.{len(self.files)}.parquet")
            path = self.directory / self.files[-1]
            self._writer = pq.ParquetWriter(
                path, table.schema, **_layout(table.schema, self.few_ids)
            )
        self._writer.write_table(table, row_group_size=ROWS_PER_GROUP)
        self._in_file += table.num_rows
        if self._in_file >= ROWS_PER_FILE:
            self._close_file()

    def _close_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        self._in_file = 0
