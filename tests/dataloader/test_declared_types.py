from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from merlin.schema import ColumnSchema, Schema, Tags

from merlin_sim.dataloader.row_check import DataError, require_types

DOMAIN = {"domain": {"min": 0, "max": 9, "name": "item"}}


def column(dtype, *tags, is_list=False, **properties):
    return ColumnSchema("x", tags=tags, dtype=dtype, is_list=is_list, properties=properties)


ID = column(np.int64, Tags.CATEGORICAL, **DOMAIN)
FLOAT_ID = column(np.float32, Tags.CATEGORICAL, **DOMAIN)
BOOL_ID = column(bool, Tags.CATEGORICAL, **DOMAIN)
LABEL = column(np.int8, Tags.TARGET, Tags.BINARY_CLASSIFICATION)
COUNT, PRICE, FLAG = column(np.int32), column(np.float32), column(bool)
UNKNOWN = column(None)
HISTORY = column(np.int64, Tags.CATEGORICAL, is_list=True, value_count={"max": 5}, **DOMAIN)
INTEGERS = [pa.int8(), pa.uint16(), pa.int64(), pa.uint64(), pa.dictionary(pa.int8(), pa.int32())]
FLOATS = [pa.float32(), pa.float64()]


def check(declared, kind):
    require_types("part.0.parquet", pa.schema([("x", kind)]), Schema([declared]))


@pytest.mark.parametrize(
    "declared, kinds",
    [
        (ID, INTEGERS),
        (FLOAT_ID, INTEGERS + FLOATS),
        (BOOL_ID, [*INTEGERS, pa.bool_()]),
        (LABEL, [*INTEGERS, *FLOATS, pa.bool_()]),
        (COUNT, INTEGERS),
        (PRICE, INTEGERS + FLOATS),
        (FLAG, [pa.bool_()]),
        (UNKNOWN, [*INTEGERS, *FLOATS, pa.bool_(), pa.list_(pa.int8())]),
        (HISTORY, [pa.list_(pa.int64()), pa.large_list(pa.uint8()), pa.list_(pa.int8(), 5)]),
    ],
)
def test_types_that_hold_what_is_declared(declared, kinds):
    for kind in kinds:
        check(declared, kind)


@pytest.mark.parametrize(
    "declared, kind, expected, received",
    [
        (ID, pa.float64(), "whole numbers", r"floating-point numbers \(double\)"),
        (ID, pa.bool_(), "whole numbers", r"truth values \(bool\)"),
        (FLOAT_ID, pa.bool_(), "numbers", r"truth values \(bool\)"),
        (COUNT, pa.float32(), "whole numbers", r"floating-point numbers \(float\)"),
        (PRICE, pa.decimal128(9, 2), "numbers", r"decimal numbers \(decimal128\(9, 2\)\)"),
        (PRICE, pa.timestamp("ms"), "numbers", r"times \(timestamp\[ms\]\)"),
        (PRICE, pa.null(), "numbers", r"nulls only \(null\)"),
        (FLAG, pa.int8(), "truth values", r"whole numbers \(int8\)"),
        (UNKNOWN, pa.string(), "numbers", r"text \(string\)"),
        (LABEL, pa.struct([("a", pa.int8())]), "numbers", r"structs \(struct<a: int8>\)"),
        (ID, pa.list_(pa.int64()), "whole numbers", "lists of whole numbers"),
        (HISTORY, pa.int64(), "lists of whole numbers", r"whole numbers \(int64\)"),
        (
            HISTORY,
            pa.list_(pa.float64()),
            "lists of whole numbers",
            "lists of floating-point numbers",
        ),
        (
            HISTORY,
            pa.list_(pa.list_(pa.int8())),
            "lists of whole numbers",
            "lists of whole numbers .list<item: list<",
        ),
    ],
)
def test_other_types_are_refused_by_file_and_column(declared, kind, expected, received):
    message = rf"^part.0.parquet: column x should hold {expected}\. Received: {received}"
    with pytest.raises(DataError, match=message):
        check(declared, kind)


def test_a_name_that_comes_twice():
    with pytest.raises(DataError, match=r"one column x was expected. Received: 2"):
        stored = pa.schema([("x", pa.int64()), ("x", pa.int64())])
        require_types("part.0.parquet", stored, Schema([ID]))
