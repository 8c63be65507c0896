"""Rows that are not what the schema says are refused, with file and row, on every device."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from merlin.io import Dataset
from merlin.schema import ColumnSchema, Schema, Tags
from small_logs import make_schema, make_table, open_dataset, write_files, write_sim_dataset

from merlin_sim.dataloader import row_loader
from merlin_sim.dataloader.arrow_columns import Column
from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.dataloader.row_check import DataError, RowCheck, require_types
from merlin_sim.dataloader.row_loader import DeviceRows, RowLoader
from merlin_sim.dataloader.stored_rows import Part
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.dataset import DatasetDirectory

ROWS = 30
FLOAT = {"item": pa.float64(), "history": pa.list_(pa.float64())}
VECTORS = [[0.5] * 3] * ROWS
WHERE = Part("part.0.parquet", 0, 100, 5).where


def with_value(name, row, value, kind=None):
    """The table of the small log with another value in one row."""
    table = make_table(ROWS).append_column("look", pa.array(VECTORS))
    values = table[name].to_pylist()
    values[row] = value
    index = table.schema.names.index(name)
    return table.set_column(index, name, pa.array(values, kind or table[name].type))


def float_schema(name):
    """The schema with ids declared as floats."""
    columns = [column.with_dtype(np.float32) if column.name == name else column
               for column in make_schema()]  # fmt: skip
    return Schema(columns)


def feed(path, table=None, schema=None):
    if table is not None:
        pq.write_table(table, path, row_group_size=10)
    look = ColumnSchema(
        "look", dtype="float64", tags=["target_item_numerical", Tags.CONTINUOUS], dims=(None, 3)
    )
    schema = make_schema() if schema is None else schema
    columns = [look, *(c for c in schema if c.name != "row"), ColumnSchema("row", dtype=np.int64)]
    kept = columns if table is not None and "look" in table.schema.names else columns[1:]
    dataset = Dataset(
        [str(path)], engine="parquet", schema=Schema(kept), cpu=True, row_groups_per_part=1
    )
    return list(RowLoader(dataset, 8))


LONG = pa.large_list(pa.uint16())
VALUES = {
    "an id beyond its table": ("item", 17, 41, None, "row 18: column item.*41"),
    "an id below its table": ("item", 17, -1, None, "row 18: column item.*-1"),
    "an id that int32 would cut": ("item", 5, 2**32 + 1, None, "row 6: column item.*4294967297"),
    "an id of a history": ("history", 23, [1, 99], None, r"row 24: column history.*0 to 40.*99"),
    "a missing id": ("item", 17, None, None, "row 18: column item holds a missing value"),
    "a missing list": ("history", 23, None, None, "row 24: column history holds a missing value"),
    "a missing long list": ("history", 23, None, LONG, "row 24: column history holds a missing"),
    "a missing element": ("history", 23, [1, None], LONG, "row 24: column history holds a missing"),
    "an element alone": ("history", 23, [None], None, "row 24: column history holds a missing"),
    "no label": ("label", 11, None, None, "row 12: column label"),
    "a label between": ("label", 11, 0.5, None, "row 12: column label"),
    "a label that is no number": ("label", 11, float("nan"), None, "row 12: column label"),
    "a short vector": ("look", 3, [0.5, 0.5], None, "row 4: column look .*vectors of 3"),
}


@pytest.mark.parametrize("fault", VALUES)
def test_values_are_refused_with_the_same_words_on_the_cpu_and_a_gpu(tmp_path, monkeypatch, fault):
    *given, message = VALUES[fault]
    path, table = tmp_path / "part.0.parquet", with_value(*given)
    with pytest.raises(DataError, match=f"part.0.parquet, {message}") as expected:
        feed(path, table)
    monkeypatch.setattr(row_loader, "StoredRows", DeviceRows)
    with pytest.raises(DataError) as received:
        feed(path, table)
    assert str(received.value) == str(expected.value)


@pytest.mark.parametrize("name", ["item", "history"])
def test_floats_are_ids_where_the_schema_says_so_and_they_are_whole(tmp_path, name):
    path = tmp_path / "part.0.parquet"
    first = make_table(ROWS)[name][17].as_py()
    whole = with_value(name, 17, first, FLOAT[name])
    message = rf"part.0.parquet: column {name} should hold .*whole numbers. Received: .*double"
    with pytest.raises(MerlinSimError, match=message):
        feed(path, whole)
    assert feed(path, whole, float_schema(name))[0][0][name].dtype.is_integer
    for value in (3.7, float("nan"), float("inf"), -0.5):
        table = with_value(name, 17, value if name == "item" else [1, value], FLOAT[name])
        message = rf"row 18: column {name} holds an id that is not a whole number.*{value}"
        with pytest.raises(MerlinSimError, match=message):
            feed(path, table, float_schema(name))


def test_what_is_no_tables_id_is_not_cut_off(tmp_path):
    table = with_value("item", 5, 2**32 + 1)
    untagged = [
        ColumnSchema("item", dtype=column.dtype, properties=column.properties)
        if column.name == "item"
        else column
        for column in make_schema()
    ]
    fed = feed(tmp_path / "part.0.parquet", table, Schema(untagged))
    assert fed[0][0]["item"].numpy()[5] == 2**32 + 1


def test_columns_that_are_not_there_once_are_named(tmp_path):
    path, table = tmp_path / "part.0.parquet", make_table(ROWS)
    other_case = table.rename_columns(["label", "row", "Item", "history", "text"])
    for without in (table.drop_columns(["item"]), other_case):
        with pytest.raises(MerlinSimError, match="part.0.parquet lacks the columns item"):
            feed(path, without)


@pytest.mark.parametrize("ending", ["", "\0x"])
def test_another_column_of_the_same_name_is_refused(tmp_path, ending):
    """Pandas ends a name at its zero byte, and dask then found two columns of one name."""
    dataset = DatasetDirectory.open(write_sim_dataset(tmp_path))
    file = dataset.files("train")[0]
    table = pq.read_table(file)
    name = table.schema.names[1]
    pq.write_table(table.append_column(name + ending, table[1]), file)
    with pytest.raises(MerlinSimError, match=rf"{file}: one column {name} was expected"):
        open_loader(dataset, "train", dataset.schema.column_names, 4, Ranks())


def test_a_file_that_is_cut_or_changes_after_it_was_opened(tmp_path):
    path = write_files(tmp_path, [[ROWS]])[0]
    loader = RowLoader(open_dataset([path]), 8, data_memory_mb=0)
    assert sum(1 for _ in loader) == 4
    write_files(tmp_path, [[ROWS - 10, 10]])
    os.utime(path, ns=(1, 1))
    with pytest.raises(MerlinSimError, match=r"part.0.parquet changed while it was read"):
        list(loader)
    loader = RowLoader(open_dataset([path]), 8)
    with open(path, "r+b") as file:
        file.truncate(100)
    with pytest.raises(MerlinSimError, match="part.0.parquet"):
        list(loader)
    with pytest.raises(MerlinSimError, match="global_rank"):
        RowLoader(open_dataset(write_files(tmp_path, [[20]])), 8, global_size=2, global_rank=2)


def test_files_of_types_that_only_floats_have_in_common(tmp_path):
    paths = []
    for number, kind in enumerate((pa.uint64(), pa.int64())):
        first = make_table(ROWS)["item"][0].as_py()
        paths.append(str(tmp_path / f"part.{number}.parquet"))
        pq.write_table(with_value("item", 0, first, kind), paths[-1])
    message = r"column item holds int64 in .*part.1.parquet and uint64 in .*part.0.parquet"
    with pytest.raises(MerlinSimError, match=message):
        list(RowLoader(open_dataset(paths), 8))


CHANNELS = {
    "items": "positive_history",
    "categories": "positive_history",
    "intervals": "history_time_intervals",
    "other_items": "negative_history",
    "other_categories": "negative_history",
}


def test_histories_of_a_channel_are_equally_long():
    schema = Schema(
        [
            ColumnSchema(name, tags=[tag], dtype=np.int64, is_list=True)
            for name, tag in CHANNELS.items()
        ]
    )

    def check(**lengths):
        columns = {name: np.array(lengths.get(name, [1, 0, 2, 3, 1])) for name in CHANNELS}
        RowCheck(schema).lengths(columns, WHERE)

    check()
    check(other_items=[2, 2, 2, 2, 2], other_categories=[2, 2, 2, 2, 2])
    for name in ("categories", "intervals"):
        message = f"part.0.parquet, row 103: items and {name} should be .*: 2 and 4"
        with pytest.raises(DataError, match=message):
            check(**{name: [1, 0, 4, 1, 1]})
    with pytest.raises(DataError, match="row 101: other_items and other_categories"):
        check(other_categories=[3, 0, 2, 3, 1])


def test_a_table_of_one_row_has_the_id_0_alone_and_numbers_are_finite_in_32_bits():
    domain = {"domain": {"min": 0, "max": 0, "name": "constant"}}
    column = ColumnSchema("constant", tags=["categorical"], dtype=np.int64, properties=domain)
    constant = Column(np.array([0, 0, 1]))
    with pytest.raises(DataError, match=r"row 103: column constant holds an id outside 0 to 0.*1"):
        RowCheck(Schema([column]))("constant", constant, WHERE)
    check = RowCheck(Schema([ColumnSchema("price", dtype=np.float64)]))
    largest = float(np.finfo(np.float32).max)
    for kind in (np.float32, np.float64):
        check("price", Column(np.array([-largest, 0.5, largest], kind)), WHERE)
    for wrong in (np.nan, np.inf, -np.inf, 1e300, -3.5e38):
        with pytest.raises(DataError, match="row 102: column price holds a number that is not fin"):
            check("price", Column(np.array([0.5, wrong])), WHERE)


def column(dtype, *tags, is_list=False, **properties):
    return ColumnSchema("x", tags=tags, dtype=dtype, is_list=is_list, properties=properties)


DOMAIN = {"domain": {"min": 0, "max": 9, "name": "item"}}
INTEGERS = [pa.int8(), pa.uint16(), pa.int64(), pa.uint64(), pa.dictionary(pa.int8(), pa.int32())]
NUMBERS = [*INTEGERS, pa.float32(), pa.float64()]
BOOL, STRUCT, LISTS = pa.bool_(), pa.struct([("a", pa.int8())]), "lists of whole numbers"
ID = column(np.int64, Tags.CATEGORICAL, **DOMAIN)
HISTORY = column(np.int64, Tags.CATEGORICAL, is_list=True, value_count={"max": 5}, **DOMAIN)
PRICE, UNKNOWN = column(np.float32), column(None)
OF_LISTS = [pa.list_(pa.int64()), pa.large_list(pa.uint8()), pa.list_(pa.int8(), 5)]


def check_type(declared, kind):
    require_types("part.0.parquet", pa.schema([("x", kind)]), Schema([declared]))


@pytest.mark.parametrize(
    ("declared", "kinds", "other", "expected", "received"),
    [
        (ID, INTEGERS, pa.float64(), "whole numbers", r"floating-point numbers \(double\)"),
        (ID, INTEGERS, BOOL, "whole numbers", r"truth values \(bool\)"),
        (ID, INTEGERS, pa.list_(pa.int64()), "whole numbers", LISTS),
        (
            *(column(np.float32, Tags.CATEGORICAL, **DOMAIN), NUMBERS),
            *(BOOL, "numbers", r"truth values \(bool\)"),
        ),
        (
            *(column(np.int8, Tags.TARGET, Tags.BINARY_CLASSIFICATION), [*NUMBERS, BOOL]),
            *(STRUCT, "numbers", r"structs \(struct<a: int8>\)"),
        ),
        (column(np.int32), INTEGERS, pa.float32(), "whole numbers", "floating-point numbers"),
        (PRICE, NUMBERS, pa.decimal128(9, 2), "numbers", r"decimal numbers \(decimal128\(9, 2\)\)"),
        (PRICE, NUMBERS, pa.timestamp("ms"), "numbers", r"times \(timestamp\[ms\]\)"),
        (PRICE, NUMBERS, pa.null(), "numbers", r"nulls only \(null\)"),
        (column(bool), [BOOL], pa.int8(), "truth values", r"whole numbers \(int8\)"),
        (
            column(bool, Tags.CATEGORICAL, **DOMAIN),
            [*INTEGERS, BOOL],
            pa.null(),
            ".*",
            "nulls only",
        ),
        (UNKNOWN, [*NUMBERS, BOOL, *OF_LISTS], pa.string(), "numbers", r"text \(string\)"),
        (HISTORY, OF_LISTS, pa.int64(), LISTS, r"whole numbers \(int64\)"),
        (HISTORY, OF_LISTS, pa.list_(pa.float64()), LISTS, "lists of floating-point numbers"),
        (HISTORY, OF_LISTS, pa.list_(pa.list_(pa.int8())), LISTS, f"{LISTS} .list<item: list<"),
    ],
)
def test_types_that_hold_what_is_declared_are_read_and_others_refused(
    declared, kinds, other, expected, received
):
    for kind in kinds:
        check_type(declared, kind)
    message = rf"^part.0.parquet: column x should hold {expected}\. Received: {received}"
    with pytest.raises(DataError, match=message):
        check_type(declared, other)
