"""Where rows are stored: parquet row groups, or the partitions of any other dataset."""

from __future__ import annotations

import contextlib
import glob
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import merlin.io
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from merlin.io.parquet import ParquetDatasetEngine
from merlin.schema import Schema

from ..foundation.process_wide import keep_freed_memory, quiet_merlin
from ..schemas.parquet.row_pieces import row_pieces
from ..schemas.parquet.whole_footer import DamageError, leaf_fields, require_whole_footer
from ..schemas.stored_types import is_list
from .data_error import READ_ERRORS, DataError
from .declared_types import require_types

Array = npt.NDArray[Any]

PIECE_ROWS = 16384
"""Row groups longer than this are decoded piece by piece, so that memory stays bounded."""


class Column(NamedTuple):
    """A column of some rows, seen as numpy: no Python object per row, and few copies."""

    values: Array
    """One a row; of lists those of all rows, one after the other."""
    offsets: Array | None = None
    """Of lists, where each row's values begin, and after the last row where they end."""
    missing: int | None = None
    """The first row without a value, or with an element without one; 0 or NaN stands there."""
    bounds: tuple[Any, Any] | None = None
    """The smallest and the largest value, where somebody has looked already."""

    @property
    def rows(self) -> int:
        """Count the rows."""
        return len(self.values) if self.offsets is None else len(self.offsets) - 1

    @property
    def kind(self) -> str:
        """Describe it, for messages."""
        return str(self.values.dtype) if self.offsets is None else f"lists of {self.values.dtype}"

    def row_of(self, position: int) -> int:
        """Find the row to which a value belongs."""
        if self.offsets is None:
            return position
        return int(np.searchsorted(self.offsets, position, side="right")) - 1


class Part(NamedTuple):
    """Rows that are stored together."""

    origin: str
    """The file, or the name of a partition, for messages."""
    number: int
    """Of the row group in its file, or of the partition."""
    first_row: int
    rows: int

    def where(self, row: int) -> str:
        """Name one of its rows (from 0) as a message does: those of a file from 1."""
        return f"{self.origin}, row {self.first_row + row + 1}"


class ParquetRows:
    """The row groups of parquet files, read straight by arrow; only the schema's columns."""

    def __init__(self, dataset: Any, schema: Schema) -> None:
        """Read how many rows each part has, and what types the files store."""
        self.parts: list[Part] = []
        self.layout: dict[str, Column] = {}
        """The columns without rows: which are lists, and every part's values fit their dtypes."""
        self._schema = schema
        self._filesystem = dataset.engine.fs
        self._files: dict[str, tuple[pq.FileMetaData, tuple[int, ...]]] = {}
        with _unreadable("the dataset"):
            paths = list(dataset.engine._dataset.files)
        for path in paths:
            self._add_file(path)

    @property
    def paths(self) -> list[str]:
        """The files, in their order."""
        return list(self._files)

    def _add_file(self, path: str) -> None:
        with _unreadable(path):
            state = version(path)
            with self._open(path) as file:
                require_whole_footer(file)
                metadata, stored = file.metadata, file.schema_arrow
        require_types(path, stored, self._schema)
        first_row = 0
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group).num_rows
            if rows:
                self.parts.append(Part(path, group, first_row, rows))
            first_row += rows
        names = self._schema.column_names
        table = pa.schema([stored.field(name) for name in names]).empty_table()
        self._join_layout(path, {name: decode(table.column(name)) for name in names})
        self._files[path] = metadata, state

    def _join_layout(self, path: str, columns: dict[str, Column]) -> None:
        """Keep the widest dtype of each column."""
        for name, column in columns.items():
            kept = self.layout.setdefault(name, column)
            dtype = np.promote_types(kept.values.dtype, column.values.dtype)
            whole = {kept.values.dtype.kind, column.values.dtype.kind} <= set("biu")
            is_other = (kept.offsets is None) != (column.offsets is None)
            if is_other or (whole and dtype.kind not in "biu"):
                raise DataError(
                    f"column {name} holds {column.kind} in {path} and {kept.kind} in"
                    f" {self.paths[0]}."
                )
            self.layout[name] = kept._replace(values=kept.values.astype(dtype))

    def pieces(self, part: Part, names: list[str]) -> Iterator[dict[str, Column]]:
        """Decode columns of a row group, at most :data:`PIECE_ROWS` rows at a time.

        Raises:
            DataError: naming the file and the rows, where they cannot be read.
        """
        path = part.origin
        self.require_unchanged(part)
        try:
            with self._open(path, self._files[path][0]) as file:
                promised = _promised_bounds(file, part.number, names)
                batches = row_pieces(file, part.number, names, PIECE_ROWS)
                for columns in _decoded(batches, names, part.rows, self.layout):
                    for name, (low, high) in promised.items():
                        columns[name] = _within(name, columns[name], low, high)
                    yield columns
        except READ_ERRORS as error:
            raise DataError(
                f"{path} is damaged in rows {part.first_row + 1} to {part.first_row + part.rows}"
                f" (row group {part.number}): {error}"
            ) from error

    def require_unchanged(self, part: Part) -> None:
        """Refuse a file that is no longer the one whose footer was read."""
        if version(part.origin) != self._files[part.origin][1]:
            raise DataError(f"{part.origin} changed while it was read.")

    def shares(self, count: int) -> list[list[str]]:
        """Share the columns out among ``count`` threads: each list alone, for they take longest."""
        lists = [[name] for name, like in self.layout.items() if like.offsets is not None]
        others = [name for name, like in self.layout.items() if like.offsets is None]
        among = 1 if lists else count
        return lists + [share for i in range(among) if (share := others[i::among])]

    def _open(self, path: str, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
        if Path(path).is_file():
            return pq.ParquetFile(path, metadata=metadata, memory_map=True)
        return pq.ParquetFile(self._filesystem.open(path), metadata=metadata)


class PartitionRows:
    """The partitions of a Merlin Dataset other than parquet: a DataFrame, CSV, a dask graph."""

    def __init__(self, dataset: Any, schema: Schema) -> None:
        """Read how many rows each part has, and what types the first one has."""
        self._frame = dataset.to_ddf(columns=list(schema.column_names))
        if dataset.cpu is False:
            self._frame = self._frame.to_backend("pandas")
        counts = self._frame.map_partitions(len).compute()
        self.parts = [
            Part(f"partition {number}", number, 0, int(rows))
            for number, rows in enumerate(counts)
            if rows
        ]
        first = self._table(self.parts[0].number if self.parts else 0)
        require_types("partition 0", first.schema, schema)
        empty = first.schema.empty_table()
        self.layout = {name: decode(empty.column(name)) for name in schema.column_names}

    def pieces(self, part: Part, names: list[str]) -> Iterator[dict[str, Column]]:
        """Compute a partition, as a whole.

        Raises:
            DataError: where it holds other types than the first.
        """
        try:
            yield from _decoded([self._table(part.number)], names, part.rows, self.layout)
        except DamageError as error:
            raise DataError(f"{part.origin}: {error}.") from error

    def shares(self, count: int) -> list[list[str]]:
        """Read all columns in one thread: a partition is computed as a whole."""
        return [list(self.layout)]

    def _table(self, number: int) -> pa.Table:
        frame = self._frame.partitions[number].compute(scheduler="synchronous")
        return pa.Table.from_pandas(frame, preserve_index=False)


def open_rows(dataset: merlin.io.Dataset, schema: Schema) -> ParquetRows | PartitionRows:
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


def in_order(paths: list[str], schema: Schema, cpu: bool | None = None) -> merlin.io.Dataset:
    """Give Merlin the files in their order, under their own names, a row group a partition.

    Of what it is given it sorts the paths, and takes a ``*`` or ``[`` in one for a pattern.
    """
    with quiet_merlin():
        source = merlin.io.Dataset(
            paths, engine="parquet", schema=schema, row_groups_per_part=1, cpu=cpu
        )
    source.engine.paths = source.engine.stripped_paths = paths
    return source


def of_file(path: str, schema: Schema, cpu: bool | None = None) -> merlin.io.Dataset:
    """Give Merlin one file, a row group a partition: only so are partitions in a known order."""
    return in_order([glob.escape(path)], schema, cpu)


def version(path: str) -> tuple[int, ...]:
    """Tell one state of a local file from another."""
    if not Path(path).is_file():
        return ()
    found = Path(path).stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def decode(array: pa.Array | pa.ChunkedArray) -> Column:
    """See a column of arrow as numpy; copy only what arrow keeps in another form."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    kind = array.type
    if not is_list(kind):
        values = _plain(array)
        return Column(_numpy(values), None, _first_null(values))
    if pa.types.is_fixed_size_list(kind):
        offsets = (array.offset + np.arange(len(array) + 1, dtype=np.int64)) * kind.list_size
    else:
        offsets = array.offsets.to_numpy() if len(array) else np.zeros(1, np.int64)
    used = _plain(array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0])))
    column = Column(_numpy(used), offsets - offsets[0] if offsets[0] else offsets)
    element = _first_null(used)
    missing = [_first_null(array), None if element is None else column.row_of(element)]
    return column._replace(missing=min((row for row in missing if row is not None), default=None))


def _decoded(
    batches: Iterable[pa.Table | pa.RecordBatch],
    names: list[str],
    rows: int,
    layout: dict[str, Column],
) -> Iterator[dict[str, Column]]:
    """Decode what must be ``rows`` rows of the layout's types.

    Raises:
        DamageError: where there are more rows or fewer, or values of another type.
    """
    seen, batches = 0, iter(batches)
    for batch in batches:
        seen += batch.num_rows
        if seen > rows or (seen == rows and next(batches, None) is not None):
            raise DamageError("there are more rows than were announced")
        columns = {name: decode(batch.column(name)) for name in names}
        for name, column in columns.items():
            like = layout[name]
            fits = np.can_cast(column.values.dtype, like.values.dtype, "safe")
            if not fits or (column.offsets is None) != (like.offsets is None):
                raise DamageError(
                    f"column {name} has {batch.num_rows} rows of {column.kind} where {rows} rows of"
                    f" {like.kind} were announced"
                )
        yield columns
    if seen < rows:
        raise DamageError(f"{rows - seen} rows are missing")


def _plain(array: pa.Array) -> pa.Array:
    """Look up what is stored as places in a dictionary."""
    return array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array


def _first_null(array: pa.Array) -> int | None:
    if not array.null_count:
        return None
    return int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))


def _numpy(array: pa.Array) -> Array:
    """A view where arrow's memory is numpy's; what is missing becomes 0, among floats NaN."""
    if array.null_count and not pa.types.is_floating(array.type):
        array = array.fill_null(False if pa.types.is_boolean(array.type) else 0)
    result: Array = array.to_numpy(zero_copy_only=False)
    return result


def _promised_bounds(
    file: pq.ParquetFile, group: int, names: list[str]
) -> dict[str, tuple[Any, Any]]:
    """Name the lists of whole numbers of which the file tells the smallest and the largest."""
    metadata, schema = file.metadata.row_group(group), file.schema_arrow
    bounds = {}
    for index, name in enumerate(leaf_fields(file)):
        kind = schema.field(name).type if name in names else None
        if kind is None or not is_list(kind) or not pa.types.is_signed_integer(kind.value_type):
            continue
        chunk = metadata.column(index)
        statistics = chunk.statistics if chunk.is_stats_set else None
        if statistics is not None and statistics.has_min_max:
            bounds[name] = statistics.min, statistics.max
    return bounds


def _within(name: str, column: Column, low: Any, high: Any) -> Column:
    """Hold a history against what the file promises, and note its own bounds."""
    if column.missing is not None or not len(column.values):
        return column
    found = column.values.min(), column.values.max()
    if found[0] < low or found[1] > high:
        raise DamageError(
            f"column {name} has values of {found[0]} to {found[1]} where the file promises"
            f" {low} to {high}"
        )
    return column._replace(bounds=found)


@contextlib.contextmanager
def _unreadable(path: str) -> Iterator[None]:
    try:
        yield
    except READ_ERRORS as error:
        raise DataError(f"{path} cannot be read as parquet: {error}") from error
