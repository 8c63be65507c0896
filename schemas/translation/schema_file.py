"""schema.pbtxt, written and read without loss.

Merlin's own text form drops what its protobuf has no field for: ``bool``, string and unsigned
dtypes, integer properties (they come back as floats), domains of columns that are not numbers. A
column that would not come back as it went carries its whole record as one more property, which
plain Merlin reads as a string and :func:`read_schema` takes up again. A record whose column has
been edited since is stale and gives way to the edit.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from google.protobuf.text_format import ParseError

from ...foundation.atomic_write import write_text_atomically
from ...foundation.exceptions import MerlinSimError
from .. import SCHEMA_FILE
from .column_record import from_record, same_column, to_record
from .merlin_import import ColumnSchema, Schema, TensorflowMetadata
from .merlin_schema import with_properties

RECORD_PROPERTY = "merlin_sim_column"


def schema_to_text(schema: Schema) -> str:
    """Return the schema as the text of a schema.pbtxt."""
    columns = []
    for column in schema.column_schemas.values():
        writable = _writable(column)
        seen = _through_merlin(writable)
        if seen is None or not same_column(seen, column):
            record = json.dumps(to_record(column), ensure_ascii=False)
            writable = with_properties(writable, {RECORD_PROPERTY: record})
        columns.append(writable)
    return _to_text(Schema(columns))


def schema_from_text(text: str) -> Schema:
    """Read the text of a schema.pbtxt, ours or anybody's.

    Raises:
        ValueError: Where the text is not a schema.
    """
    try:
        metadata = TensorflowMetadata.from_proto_text(text)
        names = [feature.name for feature in metadata.proto_schema.feature]
        twice = [name for name, count in Counter(names).items() if count > 1]
        schema = metadata.to_merlin_schema()
        lengths = {
            feature.name: feature.value_count.max for feature in metadata.proto_schema.feature
        }
    except ParseError as error:
        raise ValueError(str(error)) from error
    except Exception as error:  # Merlin passes on whatever the values in the file set off
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if twice:
        raise ValueError(f"each feature once; found twice: {', '.join(twice)}")
    for name, column in schema.column_schemas.items():
        _require_one_length(column, lengths[name])
    return Schema([_restored(column) for column in schema.column_schemas.values()])


def _require_one_length(column: ColumnSchema, stated: int) -> None:
    """Refuse a value count beside other dimensions in the annotation, which Merlin believes."""
    dims: tuple[Any, ...] = tuple(column.shape.dims or ())[1:]
    if stated and len(dims) == 1 and dims[0].max not in (None, stated):
        raise ValueError(
            f"feature {column.name}: value_count has max {stated}, its annotation {dims[0].max}"
        )


def write_schema(schema: Schema, path: Path | str) -> None:
    """Write schema.pbtxt; the file appears whole or not at all."""
    write_text_atomically(Path(path), schema_to_text(schema))


def read_schema(path: Path | str) -> Schema:
    """Read a schema.pbtxt.

    Raises:
        MerlinSimError: Where the file cannot be read or is not a schema.
    """
    try:
        return schema_from_text(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise MerlinSimError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        message = " ".join(str(error).split())
        raise MerlinSimError(f"{path}: expected a Merlin schema in text form: {message}") from error


def _to_text(schema: Schema) -> str:
    metadata = TensorflowMetadata.from_merlin_schema(schema)
    for feature in metadata.proto_schema.feature:
        feature.annotation.tag.sort()  # a set's order differs from run to run
    text: str = metadata.to_proto_text()
    return text


def _through_merlin(column: ColumnSchema) -> ColumnSchema | None:
    try:
        schema = TensorflowMetadata.from_proto_text(_to_text(Schema([column]))).to_merlin_schema()
    except Exception:  # whatever a property sets off in protobuf, the answer is: not this way
        return None
    column_seen: ColumnSchema = next(iter(schema.column_schemas.values()))
    return column_seen


def _writable(column: ColumnSchema) -> ColumnSchema:
    """Return the column with as many of its properties as Merlin can write at all."""
    if _through_merlin(column) is not None:
        return column
    domain = {key: value for key, value in column.properties.items() if key == "domain"}
    for properties in (domain, {}):
        candidate = with_properties(
            from_record({**to_record(column), "properties": {}}), properties
        )
        if _through_merlin(candidate) is not None:
            return candidate
    raise MerlinSimError(f"column {column.name!r} cannot be written to {SCHEMA_FILE}")


def _restored(column: ColumnSchema) -> ColumnSchema:
    if RECORD_PROPERTY not in column.properties:
        return column
    record = to_record(column)
    carried = record["properties"].pop(RECORD_PROPERTY)
    current = from_record(record)
    try:
        original = from_record(json.loads(carried))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return column  # somebody else's property
    seen = _through_merlin(_writable(original))
    return original if seen is not None and same_column(seen, current) else current
