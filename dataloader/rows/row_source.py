"""Where the feed's rows come from: parquet row groups, or the partitions of any other dataset."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import merlin.io
import pyarrow as pa
import pyarrow.parquet as pq
from merlin.io.parquet import ParquetDatasetEngine
from merlin.schema import Schema

from ...foundation.process_wide import keep_freed_memory
from ..data_error import READ_ERRORS, DamageError, DataError
from .declared_types import require_types
from .decoded_rows import Column, DecodedRows, decode
from .footer import require_whole_footer
from .layout import common_layout, require_fit
from .row_group import CHUNK_ROWS, ColumnsReader, column_readers
from .stored_rows import PartReader, StoredRows


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
    """The row groups of parquet files, read straight by arrow; only the schema's columns."""

    def __init__(self, dataset: Any, schema: Schema) -> None:
        """Read how many rows each part has, and what types the files store."""
        self.columns = list(schema.column_names)
        self._schema = schema
        self._filesystem = dataset.engine.fs
        self.parts: list[tuple[str, int, int, int]] = []  # path, row group, first row, rows
        self._versions: dict[str, tuple[int, ...]] = {}
        with _unreadable("the dataset"):
            files = list(dataset.engine._dataset.files)
        layouts = [self._add_file(path) for path in files]
        self._layout = common_layout(layouts)

    def _add_file(self, path: str) -> DecodedRows:
        with _unreadable(path):
            self._versions[path] = version(path)
            with self._open(path) as file:
                require_whole_footer(file)
                metadata, schema = file.metadata, file.schema_arrow
        require_types(path, schema, self._schema)
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
        self.require_unchanged(path)
        with _naming_damaged_rows(path, group, first_row, first_row + rows):
            file = self._open(path)
            readers: list[PartReader] = [
                _RowGroupPart(reader, self._layout, path, group, first_row, first_row + rows)
                for reader in column_readers(file, path, group, self.columns)
            ]
        for start in range(0, rows, CHUNK_ROWS):
            count = min(CHUNK_ROWS, rows - start)
            yield StoredRows(self.columns, count, path, first_row + start, readers)

    def require_unchanged(self, path: str) -> None:
        """Refuse a file that is no longer the one whose footer was read."""
        if version(path) != self._versions[path]:
            raise DataError(f"{path} changed while it was read.")

    def _open(self, path: str) -> pq.ParquetFile:
        if Path(path).is_file():
            return pq.ParquetFile(path, memory_map=True)
        return pq.ParquetFile(self._filesystem.open(path))


def version(path: str) -> tuple[int, ...]:
    """Tell one state of a local file from another."""
    if not Path(path).is_file():
        return ()
    found = Path(path).stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


@contextlib.contextmanager
def _unreadable(path: str) -> Iterator[None]:
    try:
        yield
    except READ_ERRORS as error:
        raise DataError(f"{path} cannot be read as parquet: {error}") from error


@contextlib.contextmanager
def _naming_damaged_rows(path: str, group: int, first_row: int, stop: int) -> Iterator[None]:
    try:
        yield
    except READ_ERRORS as error:
        raise DataError(
            f"{path} is damaged in rows {first_row + 1} to {stop} (row group {group}): {error}"
        ) from error


class _RowGroupPart:
    """Columns of a row group; what goes wrong is said with its place in the file."""

    def __init__(
        self,
        reader: ColumnsReader,
        layout: DecodedRows,
        path: str,
        group: int,
        first_row: int,
        stop: int,
    ) -> None:
        self._reader = reader
        self._layout = layout
        self._path = path
        self._group = group
        self._next = first_row
        self._stop = stop

    def read(self, first_row: int, rows: int) -> dict[str, Column]:
        while self._next < first_row:  # rows of other ranks: pages cannot be jumped into
            self._read(min(CHUNK_ROWS, first_row - self._next))
        return self._read(rows)

    def _read(self, rows: int) -> dict[str, Column]:
        with _naming_damaged_rows(self._path, self._group, self._next, self._stop):
            columns = self._reader.read(rows)
            self._next += rows
            if self._next == self._stop:
                self._reader.finish()
            require_fit(columns, rows, self._layout)
        return columns


class PartitionRows:
    """The partitions of a Merlin Dataset other than parquet: a DataFrame, CSV, a dask graph."""

    def __init__(self, dataset: Any, schema: Schema) -> None:
        """Read how many rows each part has, and what types the first one has."""
        self._frame = dataset.to_ddf(columns=list(schema.column_names))
        if dataset.cpu is False:
            self._frame = self._frame.to_backend("pandas")
        self._rows = [int(rows) for rows in self._frame.map_partitions(len).compute()]
        self._kept = [index for index, rows in enumerate(self._rows) if rows]
        first = self.table(self._kept[0] if self._kept else 0)
        require_types("partition 0", first.schema, schema)
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
        columns = decode(self._source.table(self._index), "", 0).columns
        try:
            require_fit(columns, rows, self._source.layout, "safe")
        except DamageError as error:
            raise DataError(f"partition {self._index}: {error}.") from error
        return columns


def open_rows(dataset: merlin.io.Dataset, schema: Schema) -> RowSource:
    """Choose how ``dataset`` is read: without Merlin's own frames wherever it is plain parquet.

    Args:
        dataset: where the rows are.
        schema: the columns that are read, and what they should hold.

    Raises:
        DataError: where what is stored is not what the schema says.
    """
    keep_freed_memory()
    engine: Any = dataset.engine
    if isinstance(engine, ParquetDatasetEngine) and not engine.filters and not dataset.dtypes:
        return ParquetRows(dataset, schema)
    return PartitionRows(dataset, schema)
