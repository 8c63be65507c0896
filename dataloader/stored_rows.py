"""Rows of parquet files, row group by row group: read by arrow, checked, padded, made tensors."""

from __future__ import annotations

import glob
import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import merlin.dataloader.tensorflow
import merlin.io
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import tensorflow as tf
from merlin.schema import Schema

from ..foundation.cores import count_cores
from ..foundation.gpu_forms import has_gpu_forms
from ..foundation.process_wide import keep_freed_memory, quiet_merlin
from ..schemas.parquet import DamageError, is_list, leaf_fields, require_whole_footer, row_pieces
from .arrow_columns import Array, Column, decode, pad_left
from .row_check import READ_ERRORS, DataError, RowCheck, list_widths, readable, require_types

ALIGNED = 64
"""Bytes: where TensorFlow wants memory to begin."""


def aligned_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Make an empty array that TensorFlow takes over without a copy."""
    size = math.prod(shape) * dtype.itemsize
    block = np.empty(size + ALIGNED, np.uint8)
    start = -block.ctypes.data % ALIGNED
    return block[start : start + size].view(dtype).reshape(shape)


def to_tensor(array: Any) -> tf.Tensor:
    """Hand memory over without a copy, if it is as TensorFlow wants it; leave a tensor alone."""
    if isinstance(array, tf.Tensor):
        return array
    address, is_read_only = array.__array_interface__["data"]
    is_simple = array.dtype.kind in "iuf" and array.flags.c_contiguous and array.size
    if is_simple and not is_read_only and address % ALIGNED == 0:
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tf.convert_to_tensor(array)


def to_device(array: Any) -> tf.Tensor:
    """Hand memory over, or copy it where the model is on a GPU: once, and not in every step."""
    tensor = to_tensor(array)
    for device in tf.config.list_logical_devices("GPU")[:1]:
        with tf.device(device.name):
            return tf.identity(tensor)
    return tensor


PIECE_ROWS = 16384
"""Row groups longer than this are decoded piece by piece, so that memory stays bounded."""


class Part(NamedTuple):
    """Rows that are stored together."""

    origin: str
    """The file."""
    number: int
    """Of the row group in its file."""
    first_row: int
    rows: int

    def where(self, row: int) -> str:
        """Name one of its rows (from 0) as a message does: those of a file from 1."""
        return f"{self.origin}, row {self.first_row + row + 1}"


class StoredRows:
    """The rows of parquet files, of which only the schema's columns are read.

    Lists come padded with zeros on the left to the schema's longest length; of a longer one its
    newest values stay. Ids of tables with fewer than 2^31 rows come as int32, for a model on a GPU
    all whole numbers as int64: TensorFlow keeps int32 arguments of a function on the host, and has
    no kernels of a GPU for int32 in Reshape, Concat, Slice, Split and Pad. They are decoded by so
    many ``threads``; None for one per core.
    """

    def __init__(self, paths: Sequence[str], schema: Schema, threads: int | None = None) -> None:
        keep_freed_memory()
        self.parts: list[Part] = []
        self.layout: dict[str, Column] = {}
        """The columns without rows: which are lists, and every part's values fit their dtypes."""
        self.check = RowCheck(schema)
        self._schema = schema
        self._threads = threads or count_cores()
        self._files: dict[str, tuple[pq.FileMetaData, tuple[int, ...]]] = {}
        for path in paths:
            self._add_file(path)
        self.widths = list_widths(schema, ragged=True)
        small = [name for name, largest in self.check.largest.items() if largest < 2**31]
        self.dtypes = {}
        for name, like in self.layout.items():
            dtype = np.dtype(np.int32) if name in small else like.values.dtype
            whole_on_gpu = self.is_for_gpu and dtype.kind in "iu"
            self.dtypes[name] = np.dtype(np.int64) if whole_on_gpu else dtype

    @property
    def is_for_gpu(self) -> bool:
        """Whether a model on a GPU reads the rows."""
        return has_gpu_forms()

    @property
    def key(self) -> Any:
        """What distinguishes these rows from others."""
        files = tuple((path, state) for path, (_, state) in self._files.items())
        return files, repr(self._schema), str(self.dtypes)

    @property
    def bytes_of_row(self) -> int:
        """What a row takes once it is read."""
        return sum(dtype.itemsize * self.widths.get(name, 1) for name, dtype in self.dtypes.items())

    def read(self, numbers: Sequence[int], rows: int) -> dict[str, tf.Tensor]:
        """Read row groups, in this order; columns are filled up with zeros to ``rows``."""
        parts = [self.parts[number] for number in numbers]
        for part in parts:
            self.require_unchanged(part)
        with ThreadPoolExecutor(self._threads) as pool:
            read = pool.map(lambda name: self._read_column(name, parts, rows), self.layout)
            columns = dict(zip(self.layout, read, strict=True))
        starts = np.cumsum([0, *(part.rows for part in parts)])
        lists = {name: lengths for name, (_, lengths) in columns.items() if lengths is not None}
        for part, start in zip(parts, starts.tolist(), strict=False):
            of_part = {name: found[start : start + part.rows] for name, found in lists.items()}
            self.check.lengths(of_part, part.where)
        return {name: to_device(array) for name, (array, _) in columns.items()}

    def _read_column(
        self, name: str, parts: Sequence[Part], rows: int
    ) -> tuple[Array, Array | None]:
        """A column of row groups, and of lists their lengths."""
        is_list = self.layout[name].offsets is not None
        shape = (rows, self.widths[name]) if is_list else (rows,)
        array, lengths = aligned_array(shape, self.dtypes[name]), np.zeros(rows, np.int64)
        end = 0
        for part in parts:
            for columns in self.pieces(part, [name]):
                column = columns[name]
                put = slice(end, end + column.rows)
                if column.offsets is None:
                    array[put] = column.values
                else:
                    lengths[put] = np.diff(column.offsets)
                    pad_left(column.values, lengths[put], array[put])
                end = put.stop
        array[end:] = 0
        return array, lengths if is_list else None

    def _add_file(self, path: str) -> None:
        with readable(path):
            state = version(path)
            with pq.ParquetFile(path, memory_map=True) as file:
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
                    f" {next(iter(self._files))}."
                )
            self.layout[name] = kept._replace(values=kept.values.astype(dtype))

    def pieces(self, part: Part, names: list[str]) -> Iterator[dict[str, Column]]:
        """Decode and check columns of a row group, :data:`PIECE_ROWS` rows at a time."""
        path, there = part.origin, part
        try:
            with pq.ParquetFile(path, metadata=self._files[path][0], memory_map=True) as file:
                promised = _promised_bounds(file, part.number, names)
                batches = row_pieces(file, part.number, names, PIECE_ROWS)
                for columns in _decoded(batches, names, part.rows, self.layout):
                    for name, (low, high) in promised.items():
                        columns[name] = _within(name, columns[name], low, high)
                    for name, column in columns.items():
                        self.check(name, column, there.where)
                    yield columns
                    read = next(iter(columns.values())).rows
                    there = there._replace(first_row=there.first_row + read)
        except READ_ERRORS as error:
            raise DataError(
                f"{path} is damaged in rows {part.first_row + 1} to {part.first_row + part.rows}"
                f" (row group {part.number}): {error}"
            ) from error

    def require_unchanged(self, part: Part) -> None:
        """Refuse a file that is no longer the one whose footer was read."""
        if version(part.origin) != self._files[part.origin][1]:
            raise DataError(f"{part.origin} changed while it was read.")


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


def files_of(dataset: merlin.io.Dataset) -> tuple[str, ...]:
    """The parquet files of a dataset, in their order."""
    engine = dataset.engine
    paths = engine.stripped_paths
    of_all = pyarrow.dataset.dataset(paths if len(paths) > 1 else paths[0], filesystem=engine.fs)
    return tuple(of_all.files)


def of_file(path: str, schema: Schema, cpu: bool | None = None) -> merlin.io.Dataset:
    """Give Merlin one file, a row group a partition: only so are partitions in a known order."""
    return in_order([glob.escape(path)], schema, cpu)


def batches_of(
    loader: merlin.dataloader.tensorflow.Loader, rows: int
) -> Generator[Any, None, None]:
    """Give the batches of a Merlin loader that has ``rows`` rows, and end its thread.

    Asked for one more, it would wait for ever if its thread is about to end but has not; and
    ``list`` asks for its length, which begins to read anew.
    """
    try:
        yield from islice(loader, math.ceil(rows / loader.batch_size))
    finally:
        loader.stop()


def version(path: str) -> tuple[int, ...]:
    """Identify one state of a local file."""
    if not Path(path).is_file():
        return ()
    found = Path(path).stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _decoded(
    batches: Iterable[pa.Table | pa.RecordBatch],
    names: list[str],
    rows: int,
    layout: dict[str, Column],
) -> Iterator[dict[str, Column]]:
    """Decode what must be ``rows`` rows of the layout's types."""
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


def _promised_bounds(
    file: pq.ParquetFile, group: int, names: list[str]
) -> dict[str, tuple[Any, Any]]:
    """Name the lists of whole numbers whose smallest and largest stand in the file."""
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
