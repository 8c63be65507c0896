"""Decodes a row group piece by piece: histories from their pages, other columns by arrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from ...schemas.parquet.row_pieces import row_pieces
from ..pages.list_column import ListColumnReader, MissingValue
from ..pages.list_form import list_form
from ..pages.page_header import PageError
from .decoded_rows import Column, ListColumn, decode
from .footer import leaf_fields

CHUNK_ROWS = 16384
"""Row groups longer than this are decoded piece by piece, so that memory stays bounded."""


class ColumnsReader(Protocol):
    """Some of the columns of a row group, from its first row to its last."""

    def read(self, rows: int) -> dict[str, Column]:
        """Decode the next ``rows`` rows."""
        ...

    def finish(self) -> None:
        """Refuse a row group that has more rows than were read.

        Raises:
            PageError: where there are more.
        """
        ...


def column_readers(
    file: pq.ParquetFile, path: str, group: int, columns: list[str]
) -> list[ColumnsReader]:
    """Open ``columns`` of a row group: each history by itself, all other columns together.

    Args:
        file: the opened file.
        path: where it lies; pages are read of local files only.
        group: the row group.
        columns: their names.

    Raises:
        PageError: where pages would lie behind the file's end.
    """
    histories = _list_readers(file, path, group, columns)
    readers: list[ColumnsReader] = [
        _HistoryReader(reader, path, group, name) for name, reader in histories.items()
    ]
    others = [name for name in columns if name not in histories]
    if others:
        readers.append(_ArrowReader(file, group, others, use_threads=not histories))
    return readers


def _list_readers(
    file: pq.ParquetFile, path: str, group: int, columns: list[str]
) -> dict[str, ListColumnReader]:
    """Open the list columns whose pages can be read here."""
    if not Path(path).is_file():
        return {}
    metadata, schema = file.metadata.row_group(group), file.schema_arrow
    readers = {}
    with pa.memory_map(path) as memory:
        for index, name in enumerate(leaf_fields(file)):
            if name not in columns:
                continue
            chunk = metadata.column(index)
            form = list_form(schema.field(name), file.schema.column(index), chunk)
            if form is not None:
                start = chunk.data_page_offset
                if chunk.dictionary_page_offset is not None:
                    start = min(start, chunk.dictionary_page_offset)
                memory.seek(start)
                data = memory.read_buffer(chunk.total_compressed_size)
                if len(data) < chunk.total_compressed_size:
                    raise PageError(f"its footer says that the pages of {name} end behind the file")
                readers[name] = ListColumnReader(data, form, chunk)
    return readers


class _HistoryReader:
    """A history from its pages; by arrow, which shows what is missing, from a gap in it on."""

    def __init__(self, pages: ListColumnReader, path: str, group: int, name: str) -> None:
        self._reader: ListColumnReader | _ArrowReader = pages
        self._path = path
        self._group = group
        self._name = name
        self._seen = 0

    def read(self, rows: int) -> dict[str, Column]:
        if isinstance(self._reader, ListColumnReader):
            try:
                column = ListColumn(*self._reader.read(rows), bounds=self._reader.bounds)
            except MissingValue:
                file = pq.ParquetFile(self._path, memory_map=True)
                self._reader = _ArrowReader(file, self._group, [self._name])
                self._reader.skip(self._seen)
            else:
                self._seen += rows
                return {self._name: column}
        return self._reader.read(rows)

    def finish(self) -> None:
        self._reader.finish()


class _ArrowReader:
    """Columns as arrow decodes them."""

    def __init__(
        self, file: pq.ParquetFile, group: int, columns: list[str], use_threads: bool = False
    ) -> None:
        self._batches = row_pieces(file, group, columns, CHUNK_ROWS, use_threads)
        self._columns = columns
        self._rest: pa.RecordBatch | None = None

    def read(self, rows: int) -> dict[str, Column]:
        batches = list(self._take(rows))
        table = batches[0] if len(batches) == 1 else pa.Table.from_batches(batches)
        return decode(table.select(self._columns), "", 0).columns  # a.b comes where a is asked for

    def finish(self) -> None:
        if self._rest is not None or next(self._batches, None) is not None:
            raise PageError("there are more rows than were announced")

    def skip(self, rows: int) -> None:
        for _ in self._take(rows):
            pass

    def _take(self, rows: int) -> Iterator[pa.RecordBatch]:
        while rows:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            if batch is None:
                raise PageError(f"{rows} rows are missing")
            taken = batch.slice(0, rows)
            self._rest = batch.slice(rows) if rows < batch.num_rows else None
            rows -= taken.num_rows
            yield taken
