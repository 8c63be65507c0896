"""Where the feed's rows come from: parquet row groups, or the partitions of any other dataset."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import merlin.io
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from merlin.io.parquet import ParquetDatasetEngine

from ..schemas.exceptions import MerlinSimError
from .columns import Column, DecodedRows, ListColumn, decode
from .pages.list_form import value_bounds
from .pages.page_header import PageError
from .row_group import CHUNK_ROWS, ColumnsReader, column_readers
from .stored_rows import PartReader, StoredRows


class DataError(MerlinSimError):
    """What is stored cannot be used; the message names the file and, if there is one, the row."""


class RowSource(Protocol):
    """An ordered list of parts, each read on its own from its first row to its last."""

    @property
    def part_rows(self) -> list[int]:
        """The number of rows of each part."""
        ...

    @property
    def layout(self) -> DecodedRows:
        """The columns without rows: which are lists, and every part's values fit their dtypes."""
        ...

    def read(self, part: int) -> Iterator[StoredRows]:
        """Open ``part`` and give its rows, in order, at most so many as are decoded at a time."""
        ...


class ParquetRows:
    """The row groups of parquet files, read straight by arrow; only ``columns`` are read."""

    def __init__(self, dataset: Any, columns: list[str]) -> None:
        """Read how many rows each part has."""
        self.columns = columns
        self._filesystem = dataset.engine.fs
        self.parts: list[tuple[str, int, int, int]] = []  # path, row group, first row, rows
        try:
            files = list(dataset.engine._dataset.files)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"the dataset cannot be read as parquet: {error}") from error
        layouts = [self._add_file(path) for path in files]
        self._layout = common_layout(layouts)

    def _add_file(self, path: str) -> DecodedRows:
        try:
            with self._open(path) as file:
                metadata, schema = file.metadata, file.schema_arrow
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path} cannot be read as parquet: {error}") from error
        missing = [name for name in self.columns if name not in schema.names]
        if missing:
            raise DataError(f"{path} lacks the columns {', '.join(missing)}.")
        first_row = 0
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group).num_rows
            if rows:
                self.parts.append((path, group, first_row, rows))
            first_row += rows
        fields = pa.schema([schema.field(name) for name in self.columns])
        return decode(fields.empty_table(), path, 0)

    @property
    def layout(self) -> DecodedRows:
        """The columns of all files, each of the widest dtype in which it is stored."""
        return self._layout

    @property
    def part_rows(self) -> list[int]:
        """The number of rows of each row group that has any."""
        return [rows for _, _, _, rows in self.parts]

    def read(self, part: int) -> Iterator[StoredRows]:
        """Open a row group: at most :data:`~.row_group.CHUNK_ROWS` rows at a time."""
        path, group, first_row, rows = self.parts[part]
        with _damage(path, group, first_row, first_row + rows):
            file = self._open(path)
            bounds = _bounds(file.metadata.row_group(group))
            readers: list[PartReader] = [
                _RowGroupPart(reader, path, group, first_row, first_row + rows)
                for reader in column_readers(file, path, group, self.columns)
            ]
        for start in range(0, rows, CHUNK_ROWS):
            count = min(CHUNK_ROWS, rows - start)
            yield StoredRows(self.columns, count, path, first_row + start, readers, bounds)

    def _open(self, path: str) -> pq.ParquetFile:
        if Path(path).is_file():
            return pq.ParquetFile(path, memory_map=True)
        return pq.ParquetFile(self._filesystem.open(path))


@contextlib.contextmanager
def _damage(path: str, group: int, first_row: int, stop: int) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, PageError) as error:
        raise DataError(
            f"{path} is damaged in rows {first_row} to {stop - 1} (row group {group}): {error}"
        ) from error


class _RowGroupPart:
    """Columns of a row group; what goes wrong is said with its place in the file."""

    def __init__(
        self, reader: ColumnsReader, path: str, group: int, first_row: int, stop: int
    ) -> None:
        self._reader = reader
        self._path = path
        self._group = group
        self._next = first_row
        self._stop = stop

    def read(self, first_row: int, rows: int) -> dict[str, Column]:
        while self._next < first_row:  # rows of other ranks: pages cannot be jumped into
            self._read(min(CHUNK_ROWS, first_row - self._next))
        return self._read(rows)

    def _read(self, rows: int) -> dict[str, Column]:
        with _damage(self._path, self._group, self._next, self._stop):
            columns = self._reader.read(rows)
        self._next += rows
        return columns


def _bounds(group: pq.RowGroupMetaData) -> dict[str, tuple[Any, Any]]:
    bounds = {}
    for index in range(group.num_columns):
        column = group.column(index)
        promised = value_bounds(column)
        if promised is not None:
            bounds[column.path_in_schema.split(".")[0]] = promised
    return bounds


class PartitionRows:
    """The partitions of a Merlin Dataset other than parquet: a DataFrame, CSV, a dask graph."""

    def __init__(self, dataset: Any, columns: list[str]) -> None:
        """Read how many rows each part has."""
        self._frame = dataset.to_ddf(columns=columns)
        if dataset.cpu is False:
            self._frame = self._frame.to_backend("pandas")
        self._rows = [int(rows) for rows in self._frame.map_partitions(len).compute()]
        self._kept = [index for index, rows in enumerate(self._rows) if rows]
        first = self.table(self._kept[0] if self._kept else 0)
        self._layout = decode(first.schema.empty_table(), "partition 0", 0)

    @property
    def layout(self) -> DecodedRows:
        """The columns of the first partition, without rows."""
        return self._layout

    @property
    def part_rows(self) -> list[int]:
        """The number of rows of each partition that has any."""
        return [self._rows[index] for index in self._kept]

    def read(self, part: int) -> Iterator[StoredRows]:
        """Give a partition as a whole."""
        index = self._kept[part]
        names, rows = list(self._layout.columns), self._rows[index]
        yield StoredRows(names, rows, f"partition {index}", 0, [_PartitionReader(self, index)])

    def table(self, index: int) -> pa.Table:
        """Compute a partition."""
        frame = self._frame.partitions[index].compute(scheduler="synchronous")
        return pa.Table.from_pandas(frame, preserve_index=False)


class _PartitionReader:
    """Computes a partition and turns it into arrow."""

    def __init__(self, source: PartitionRows, index: int) -> None:
        self._source = source
        self._index = index

    def read(self, first_row: int, rows: int) -> dict[str, Column]:
        return decode(self._source.table(self._index), "", 0).columns


def common_layout(layouts: list[DecodedRows]) -> DecodedRows:
    """Join the layouts of several files: the widest dtype of each column.

    Raises:
        DataError: where a column is a list in one file and a scalar in another, or where two
            files' types have none in common.
    """
    first = layouts[0]
    columns = dict(first.columns)
    for layout in layouts[1:]:
        for name, column in layout.columns.items():
            kept = columns[name]
            kind = np.promote_types(kept.values.dtype, column.values.dtype)
            if type(kept) is not type(column) or kind.kind in "OUS":
                raise DataError(
                    f"column {name} holds {_describe(column)} in {layout.origin}"
                    f" and {_describe(kept)} in {first.origin}."
                )
            columns[name] = replace(kept, values=kept.values.astype(kind))
    return replace(first, columns=columns)


def _describe(column: Column) -> str:
    kind = "text" if column.values.dtype.kind in "OUS" else str(column.values.dtype)
    return f"lists of {kind}" if isinstance(column, ListColumn) else kind


def _keep_freed_memory() -> None:
    """Let arrow keep memory for ten seconds after a window is done, for the next window.

    Its default of one second has every window touch new pages, at about a third of the rate.
    """
    with contextlib.suppress(NotImplementedError):  # a build without jemalloc
        pa.jemalloc_set_decay_ms(10_000)


def open_rows(dataset: merlin.io.Dataset, columns: list[str]) -> RowSource:
    """Choose how ``dataset`` is read: without Merlin's own frames wherever it is plain parquet."""
    _keep_freed_memory()
    engine: Any = dataset.engine
    rows: RowSource
    if isinstance(engine, ParquetDatasetEngine) and not engine.filters and not dataset.dtypes:
        rows = ParquetRows(dataset, columns)
    else:
        rows = PartitionRows(dataset, columns)
    for name, column in rows.layout.columns.items():
        if column.values.dtype.kind not in "biuf":
            raise DataError(f"column {name} should hold numbers. Received: {_describe(column)}.")
    return rows
