"""Compares the types that are stored with those that the schema declares."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from merlin.dtypes import ElementType
from merlin.schema import ColumnSchema, Schema

from ..schemas.parquet import is_list, type_in_words, value_type
from .batch_form import binary_labels, largest_ids
from .data_error import DataError

NUMBERS = (ElementType.Bool, ElementType.Int, ElementType.UInt, ElementType.Float)
"""What a column is declared as where its type is known."""


def require_types(origin: str, stored: pa.Schema, declared: Schema) -> None:
    """Refuse columns that are not there once, or whose type is not what the schema declares.

    Whole numbers of any width pass as whole numbers, and as numbers; labels that are 0 or 1 pass
    in any type, for their values are checked. Ids are stored as floats only where the schema says
    float (their values are checked to be whole), as truth values only where it says so.

    Raises:
        DataError: with every such column, and the file (or partition) that ``origin`` names.
    """
    missing = [name for name in declared.column_names if name not in stored.names]
    if missing:
        raise DataError(f"{origin} lacks the columns {', '.join(missing)}.")
    wrong = []
    for column in declared:
        count = stored.names.count(column.name)
        if count > 1:
            wrong.append(f"{origin}: one column {column.name} was expected. Received: {count}.")
            continue
        kind = stored.field(column.name).type
        kinds = _kinds(column, declared)
        is_form = is_list(kind) == column.is_list or column.dtype.element_type not in NUMBERS
        if not is_form or _numpy_kind(kind.value_type if is_list(kind) else kind) not in kinds:
            wrong.append(
                f"{origin}: column {column.name} should hold {_expected(column, kinds)}."
                f" Received: {type_in_words(kind)}."
            )
    if wrong:
        raise DataError("\n".join(wrong))


def _kinds(column: ColumnSchema, schema: Schema) -> list[str]:
    """Say in which kinds of numpy's types a column may be stored."""
    element = column.dtype.element_type
    is_id = column.name in largest_ids(schema)
    if column.name in binary_labels(schema):
        return ["b", "i", "u", "f"]
    if element == ElementType.Bool:
        return ["b", "i", "u"] if is_id else ["b"]
    if element == ElementType.Float:
        return ["i", "u", "f"]
    if is_id or element in (ElementType.Int, ElementType.UInt):
        return ["i", "u"]
    return ["b", "i", "u", "f"]


def _expected(column: ColumnSchema, kinds: list[str]) -> str:
    words = "numbers" if "f" in kinds else "whole numbers" if "i" in kinds else "truth values"
    return f"lists of {words}" if column.is_list else words


def _numpy_kind(kind: pa.DataType) -> str:
    """Return the kind of the numpy type, or nothing where there are no numbers."""
    if is_list(kind):
        return ""
    kind = value_type(kind)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.dtype(kind.to_pandas_dtype()).kind
    return ""
