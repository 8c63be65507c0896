"""Parquet files as they are stored: footers, rows in pieces, and the types of columns.

Arrow ends the process where it reads columns of unequal lengths together in pieces, as a damaged
page makes them. Of a whole row group it refuses them, and one column alone cannot be unequal.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..foundation.exceptions import MerlinSimError, Problem
from .dtypes import is_integer, is_number

UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError)
"""What pyarrow raises of a file that is damaged or no parquet file at all."""


class UnreadableFooter(MerlinSimError):
    """A parquet file whose footer cannot be read, as a problem of that file."""

    def __init__(self, file: Path, error: BaseException) -> None:
        self.problem = Problem(str(file), (), "a parquet file", why(error))
        super().__init__(str(self.problem))


@contextmanager
def reading(what: object) -> Iterator[None]:
    """Say of a file, or a part of one, that what is done in the block shows that it is damaged."""
    try:
        yield
    except UNREADABLE as error:
        raise MerlinSimError(f"{what}: cannot be read ({why(error)}).") from error


def read_footer(file: Path) -> tuple[pq.FileMetaData, pa.Schema]:
    """Read a parquet file's footer."""
    try:
        metadata = pq.read_metadata(file)
        columns = metadata.schema.to_arrow_schema()
        for field in columns:
            str(field)  # names are decoded only when they are asked for
    except UNREADABLE as error:
        raise UnreadableFooter(file, error) from error
    return metadata, columns


def why(error: BaseException) -> str:
    """Say in one line why a file could not be read.

    >>> why(FileNotFoundError(2, "No such file or directory"))
    'No such file or directory'
    """
    if isinstance(error, UnicodeDecodeError):
        return "a name that is not UTF-8"
    text = getattr(error, "strerror", None) or str(error)
    return " ".join(text.split())[:200]


def row_pieces(
    file: pq.ParquetFile, group: int, columns: list[str], rows: int, use_threads: bool = False
) -> Iterator[pa.RecordBatch]:
    """Decode a row group: at once where it is not longer than a piece, else column by column.

    Args:
        file: The opened file.
        group: The row group.
        columns: Their names.
        rows: The rows of a piece, at most.
        use_threads: Whether columns that are decoded at once may be so side by side.

    Raises:
        pa.ArrowInvalid: Where columns have unequal lengths.
    """
    if file.metadata.row_group(group).num_rows <= rows:
        yield from file.read_row_group(group, columns=columns, use_threads=use_threads).to_batches()
        return
    readers = [file.iter_batches(rows, row_groups=[group], columns=[name]) for name in columns]
    for parts in itertools.zip_longest(*readers):
        lengths = [0 if part is None else part.num_rows for part in parts]
        if len(set(lengths)) > 1:
            short = columns[lengths.index(min(lengths))]
            raise pa.ArrowInvalid(f"column {short} has fewer rows than others")
        arrays = [  # a.b comes where a is asked for
            part.column(part.schema.names.index(name))
            for name, part in zip(columns, parts, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=columns)


def file_pieces(file: pq.ParquetFile, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Decode a file, row group by row group; see :func:`row_pieces`."""
    for group in range(file.num_row_groups):
        yield from row_pieces(file, group, columns, rows)


class DamageError(ValueError):
    """The bytes are not what parquet, or the file's own footer, says they should be."""


def leaf_fields(file: pq.ParquetFile) -> list[str]:
    """Name the field of every column of a file.

    Parquet stores each number within a field as a column of its own, in the order of the fields,
    under a path such as ``history.list.element``. Names may hold dots too, so that the path does
    not say where the field's name ends.
    """
    return [field.name for field in file.schema_arrow for _ in range(_leaves(field.type))]


def _leaves(kind: pa.DataType) -> int:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _leaves(kind.storage_type)
    if types.is_struct(kind):
        return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields))
    if types.is_map(kind):
        return _leaves(kind.key_type) + _leaves(kind.item_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _leaves(kind.value_type)
    return 1


def require_whole_footer(file: pq.ParquetFile) -> None:
    """Check that the row groups agree with the schema and the number of rows."""
    metadata, schema = file.metadata, file.schema
    fields = leaf_fields(file)
    columns = [schema.column(index) for index in range(metadata.num_columns)]
    paths = [column.path for column in columns]
    if len(fields) != len(paths) or not all(
        f"{path}.".startswith(f"{name}.") for path, name in zip(paths, fields, strict=True)
    ):
        raise DamageError(f"it has the columns {paths} where its schema has {fields}")
    rows = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        rows += group.num_rows
        for index, column in enumerate(columns):
            chunk = group.column(index)
            _require_column(chunk, column, f"row group {number}")
            if column.max_repetition_level == 0 and chunk.num_values != group.num_rows:
                raise DamageError(
                    f"row group {number} has {group.num_rows} rows, its column {column.path}"
                    f" {chunk.num_values}"
                )
    if rows != metadata.num_rows:
        raise DamageError(f"its row groups have {rows} rows, the file {metadata.num_rows}")


def _require_column(
    chunk: pq.ColumnChunkMetaData, column: pq.ParquetColumnSchema, where: str
) -> None:
    stored = chunk.path_in_schema, chunk.physical_type
    expected = column.path, column.physical_type
    if stored != expected:
        raise DamageError(
            f"{where} has the column {' of type '.join(stored)}."
            f" Expected: {' of type '.join(expected)}"
        )


_NAMES = (
    (pa.types.is_null, "nulls only"),
    (pa.types.is_boolean, "truth values"),
    (pa.types.is_integer, "whole numbers"),
    (pa.types.is_floating, "floating-point numbers"),
    (pa.types.is_decimal, "decimal numbers"),
    (pa.types.is_date, "dates"),
    (pa.types.is_temporal, "times"),
    (pa.types.is_string, "text"),
    (pa.types.is_large_string, "text"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
    (pa.types.is_fixed_size_binary, "bytes"),
    (pa.types.is_struct, "structs"),
    (pa.types.is_map, "maps"),
)


def is_list(kind: pa.DataType) -> bool:
    """Return whether a column of this type has a list in each row."""
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(kind) for test in tests)


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column's values: of a list its entries', of a dictionary its own.

    >>> value_type(pa.list_(pa.dictionary(pa.int8(), pa.int64())))
    DataType(int64)
    """
    while is_list(kind) or pa.types.is_dictionary(kind):
        kind = kind.value_type
    return kind


def fits(kind: pa.DataType, dtype: str) -> bool:
    """Return whether values of a stored type can be those of a feature.

    Whole numbers of any width fit each other: that they are in range is seen in the values. What
    is no number has no rule here.

    >>> fits(pa.int32(), "int64"), fits(pa.float64(), "int64"), fits(pa.int8(), "float32")
    (True, False, True)
    """
    if not is_number(dtype):
        return True
    stored = value_type(kind)
    is_whole = pa.types.is_integer(stored) or pa.types.is_boolean(stored)
    return bool(is_whole or (pa.types.is_floating(stored) and not is_integer(dtype)))


def type_in_words(kind: pa.DataType) -> str:
    """Name a type as people know it, and as arrow does.

    >>> type_in_words(pa.decimal128(5, 2))
    'decimal numbers (decimal128(5, 2))'
    >>> type_in_words(pa.list_(pa.null()))
    'lists of nulls only (list<item: null>)'
    """
    inner = value_type(kind)
    name = next((name for test, name in _NAMES if test(inner)), "another type")
    lists = "lists of " if is_list(kind) else ""
    return f"{lists}{name} ({kind})"
