"""A Merlin column as plain data, complete: what JSON and YAML can hold, and back."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..foundation.exceptions import MerlinSimError
from .channels import tag_names
from .merlin_import import ColumnSchema, Schema, Shape, md

_DTYPES = {value.name: value for value in vars(md).values() if isinstance(value, md.DType)}


def to_record(column: ColumnSchema) -> dict[str, Any]:
    """Return everything a column schema says as scalars, lists and dicts."""
    record: dict[str, Any] = {"name": column.name}
    record["dtype"] = _dtype_record(column.dtype.without_shape)
    if column.shape.dims is not None:
        record["dims"] = [[dim.min, dim.max] for dim in column.shape.dims]
    record["tags"] = sorted(tag_names(column))
    where = f"column {column.name!r}: property"
    record["properties"] = {
        str(key): _encode(value, f"{where} {key!r}") for key, value in column.properties.items()
    }
    return record


def from_record(record: Mapping[str, Any]) -> ColumnSchema:
    """Build the column schema that :func:`to_record` described.

    Raises:
        ValueError, TypeError, KeyError: Where the record is not one that it wrote.
    """
    dims = record.get("dims")
    return ColumnSchema(
        str(record["name"]),
        tags=[str(tag) for tag in record["tags"]],
        properties={key: _decode(value) for key, value in dict(record["properties"]).items()},
        dtype=_dtype(record["dtype"]),
        dims=None if dims is None else tuple((low, high) for low, high in dims),
    )


def canonical_text(record: Any) -> str:
    """Return a text that two records share exactly when they say the same."""
    return json.dumps(record, sort_keys=True, default=repr)


def same_column(ours: ColumnSchema, theirs: ColumnSchema) -> bool:
    """Return whether two columns say the same; stricter than ``==``, which takes 1 for 1.0."""
    return canonical_text(to_record(ours)) == canonical_text(to_record(theirs))


def same_schema(ours: Schema, theirs: Schema) -> bool:
    """Return whether two schemas say the same of the same columns in the same order."""
    left, right = list(ours.column_schemas.values()), list(theirs.column_schemas.values())
    return len(left) == len(right) and all(map(same_column, left, right))


def _dtype_record(dtype: Any) -> Any:
    if _DTYPES.get(dtype.name) == dtype:
        return dtype.name
    parts = {part.name: getattr(dtype, part.name) for part in fields(dtype) if part.name != "shape"}
    return {name: getattr(value, "value", value) for name, value in parts.items()}


def _dtype(record: Any) -> Any:
    if isinstance(record, str):
        return _DTYPES[record]
    unit = record["element_unit"]
    return md.DType(
        record["name"],
        type(md.int64.element_type)(record["element_type"]),
        record["element_size"],
        None if unit is None else type(md.datetime64ns.element_unit)(unit),
        record["signed"],
        Shape(),
    )


# Values that JSON cannot express are written under a name that marks them.
def _encode(value: Any, where: str) -> Any:
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("__") for key in value):
            return {key: _encode(item, where) for key, item in value.items()}
        pairs = [[_encode(key, where), _encode(item, where)] for key, item in value.items()]
        return {"__items__": pairs}
    if isinstance(value, list):
        return [_encode(item, where) for item in value]
    if isinstance(value, tuple):
        return {"__tuple__": [_encode(item, where) for item in value]}
    if isinstance(value, set | frozenset):
        return {"__set__": sorted((_encode(item, where) for item in value), key=canonical_text)}
    if isinstance(value, bytes):
        return {"__bytes__": base64.b64encode(value).decode()}
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a NumPy scalar
        value = value.item()
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise MerlinSimError(f"{where}: a {type(value).__name__} cannot be written to a text file")


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if "__items__" in value:
        return {_decode(key): _decode(item) for key, item in value["__items__"]}
    if "__tuple__" in value:
        return tuple(_decode(item) for item in value["__tuple__"])
    if "__set__" in value:
        return {_decode(item) for item in value["__set__"]}
    if "__bytes__" in value:
        return base64.b64decode(value["__bytes__"])
    return {key: _decode(item) for key, item in value.items()}
