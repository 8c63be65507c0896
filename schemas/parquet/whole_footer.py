"""What a parquet file's footer says of its columns, and whether that holds together."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq


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
    """Check that the row groups agree with the schema and the number of rows.

    Raises:
        DamageError: where they contradict each other: rows would be lost, or columns exchanged.
    """
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
