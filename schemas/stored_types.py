"""The types of stored columns: which of them fit a feature's dtype, and how people call them."""

from __future__ import annotations

import pyarrow as pa

from .dtypes import is_integer, is_number

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
    """Tell whether a column of this type has a list in each row."""
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
    """Tell whether values of a stored type can be those of a feature.

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
