"""schema.pbtxt, written and read without loss.

Merlin's own text form drops what its protobuf has no field for: ``bool``, string and unsigned
dtypes, integer properties (they come back as floats), domains of columns that are not numbers. A
column that would not come back as it went carries its whole record as one more property, which
plain Merlin reads as a string and :func:`read_schema` takes up again. A record whose column has
been edited since is stale and gives way to the edit.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from google.protobuf.struct_pb2 import Struct
from google.protobuf.text_format import ParseError

from ..foundation.exceptions import MerlinSimError
from ..foundation.files import write_text_atomically
from . import SCHEMA_FILE
from .column_record import from_record, same_column, to_record
from .merlin_import import ColumnSchema, Schema, TensorflowMetadata
from .merlin_schema import with_properties, without_property

RECORD_PROPERTY = "merlin_sim_column"


def schema_to_text(schema: Schema) -> str:
    """Return the schema as the text of a schema.pbtxt."""
    columns = list(schema.column_schemas.values())
    found, text = _written(columns)
    written = []
    for column, (writable, seen) in zip(columns, found, strict=True):
        if not same_column(seen, column):
            record = json.dumps(to_record(column), ensure_ascii=False)
            writable = with_properties(writable, {RECORD_PROPERTY: record})
            text = None
        written.append(writable)
    return _to_text(Schema(written)) if text is None else text


def schema_from_text(text: str) -> Schema:
    """Read the text of a schema.pbtxt, ours or anybody's; a ValueError says that it is none."""
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
    return Schema(_restored(list(schema.column_schemas.values())))


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
    """Read a schema.pbtxt."""
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
        # The order of a set, and of a map in bytes, differs from run to run.
        feature.annotation.tag.sort()
        for properties in feature.annotation.extra_metadata:
            struct = Struct.FromString(properties.value)
            properties.value = struct.SerializeToString(deterministic=True)
    text: str = metadata.to_proto_text()
    return text


def _through_merlin(columns: list[ColumnSchema]) -> tuple[list[ColumnSchema], str]:
    """Return columns as Merlin reads what it writes of them, and what it writes."""
    text = _to_text(Schema(columns))
    schema = TensorflowMetadata.from_proto_text(text).to_merlin_schema()
    seen = list(schema.column_schemas.values())
    if len(seen) != len(columns):
        raise ValueError("columns have one name")
    return seen, text


def _written(
    columns: list[ColumnSchema],
) -> tuple[list[tuple[ColumnSchema, ColumnSchema]], str | None]:
    """Return each column as it can be written, and as Merlin then reads it; and their text.

    All go through Merlin together, and each by itself, without a text of all, only where one of
    them cannot.
    """
    with contextlib.suppress(Exception):
        seen, text = _through_merlin(columns)
        return list(zip(columns, seen, strict=True)), text
    return [_written_alone(column) for column in columns], None


def _written_alone(column: ColumnSchema) -> tuple[ColumnSchema, ColumnSchema]:
    """Write a column with as many of its properties as Merlin can write at all."""
    domain = {key: value for key, value in column.properties.items() if key == "domain"}
    bare = from_record({**to_record(column), "properties": {}})
    for candidate in (column, with_properties(bare, domain), bare):
        try:
            return candidate, _through_merlin([candidate])[0][0]
        except Exception as error:  # Merlin's and protobuf's own
            reason = error
    raise MerlinSimError(
        f"column {column.name!r} cannot be written to {SCHEMA_FILE}: {reason}"
    ) from reason


def _restored(columns: list[ColumnSchema]) -> list[ColumnSchema]:
    """Take up the records that columns carry, but for those whose column was edited since."""
    found, originals = list(columns), {}
    for index, column in enumerate(columns):
        if RECORD_PROPERTY not in column.properties:
            continue
        try:
            originals[index] = from_record(json.loads(column.properties[RECORD_PROPERTY]))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue  # a property of another tool
        found[index] = without_property(column, RECORD_PROPERTY)
    read, _ = _written(list(originals.values()))
    for (index, original), (_, seen) in zip(originals.items(), read, strict=True):
        if same_column(seen, found[index]):
            found[index] = original
    return found
