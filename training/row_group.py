"""Decodes a row group piece by piece: histories from their pages, other columns by arrow."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from .columns import Column, ListColumn, decode
from .pages.list_column import ListColumnReader, MissingElement
from .pages.list_form import list_form

CHUNK_ROWS = 16384
"""Row groups longer than this are decoded piece by piece, so that memory stays bounded."""

Piece = tuple[dict[str, Column], int]
"""Columns and their number of rows."""


def read_row_group(
    file: pq.ParquetFile, path: str, group: int, columns: list[str]
) -> Iterator[Piece]:
    """Decode ``columns`` of a row group, at most :data:`CHUNK_ROWS` rows at a time.

    Args:
        file: the opened file.
        path: where it lies; pages are read of local files only.
        group: the row group.
        columns: their names, in the order of the result.
    """
    seen = 0
    readers = _list_readers(file, path, group, columns)
    if readers:
        try:
            for piece in _read_pages(file, group, columns, readers):
                yield piece
                seen += piece[1]
            return
        except MissingElement:
            pass  # arrow shows what is missing
    for batch in file.iter_batches(CHUNK_ROWS, row_groups=[group], columns=columns):
        skipped = min(seen, batch.num_rows)
        seen -= skipped
        if skipped < batch.num_rows:
            rest = batch.slice(skipped)
            yield decode(rest, path, 0).columns, rest.num_rows


def _list_readers(
    file: pq.ParquetFile, path: str, group: int, columns: list[str]
) -> dict[str, ListColumnReader]:
    """Open the list columns whose pages can be read here."""
    if not Path(path).is_file():
        return {}
    metadata, schema = file.metadata.row_group(group), file.schema_arrow
    readers = {}
    with pa.memory_map(path) as memory:
        for index in range(metadata.num_columns):
            chunk = metadata.column(index)
            name = chunk.path_in_schema.split(".")[0]
            if name not in columns:
                continue
            form = list_form(schema.field(name), file.schema.column(index), chunk)
            if form is not None:
                start = chunk.data_page_offset
                if chunk.dictionary_page_offset is not None:
                    start = min(start, chunk.dictionary_page_offset)
                memory.seek(start)
                data = memory.read_buffer(chunk.total_compressed_size)
                readers[name] = ListColumnReader(data, form, chunk)
    return readers


def _read_pages(
    file: pq.ParquetFile, group: int, columns: list[str], readers: dict[str, ListColumnReader]
) -> Iterator[Piece]:
    others = [name for name in columns if name not in readers]
    with ThreadPoolExecutor(min(len(readers), pa.cpu_count())) as threads:
        for piece, count in _read_others(file, group, others):
            lists = threads.map(ListColumnReader.read, readers.values(), [count] * len(readers))
            decoded = {name: ListColumn(*read) for name, read in zip(readers, lists, strict=True)}
            everything = {**piece, **decoded}
            yield {name: everything[name] for name in columns}, count


def _read_others(file: pq.ParquetFile, group: int, columns: list[str]) -> Iterator[Piece]:
    if columns:
        for batch in file.iter_batches(CHUNK_ROWS, row_groups=[group], columns=columns):
            yield decode(batch, "", 0).columns, batch.num_rows
        return
    rows = file.metadata.row_group(group).num_rows
    for start in range(0, rows, CHUNK_ROWS):
        yield {}, min(CHUNK_ROWS, rows - start)
