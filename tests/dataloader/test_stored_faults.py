"""Files that say one thing and hold another: nothing of that is fed unseen."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from merlin.io import Dataset
from merlin.schema import ColumnSchema, Schema
from small_logs import (
    LONGEST,
    make_schema,
    make_table,
    open_dataset,
    write_files,
    write_sim_dataset,
)

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.dataloader.row_loader import RowLoader
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.dataset import DatasetDirectory as Directory

ROWS = 30


def write(path, table, **options):
    pq.write_table(table, path, row_group_size=10, **options)
    return str(path)


def feed(path, schema=None, **options):
    dataset = open_dataset([path])
    if schema is not None:
        dataset.schema = schema
    return list(RowLoader(dataset, 8, **options))


def with_column(name, values, kind=None):
    table = make_table(ROWS)
    place = table.schema.names.index(name)
    return table.set_column(place, name, pa.array(values, kind))


def float_schema(name):
    """The schema with ids declared as floats."""
    columns = []
    for column in make_schema():
        if column.name == name:
            column = column.with_dtype(np.float32)
        columns.append(ColumnSchema("row", dtype=np.int64) if column.name == "row" else column)
    return Schema(columns)


def test_columns_whose_names_hold_dots_are_kept_apart(tmp_path):
    table = make_table(ROWS)
    records = pa.array([{"x": 5}] * ROWS)
    table = table.append_column("history.x", pa.array([[7, 7]] * ROWS))
    table = table.add_column(0, "history.list.element", pa.array([[8]] * ROWS))
    table = table.append_column("item.x", pa.array([3] * ROWS)).append_column("label.a", records)
    dataset = open_dataset([write(tmp_path / "part.0.parquet", table)])
    batches = list(RowLoader(dataset, ROWS))
    assert len(batches) == 1
    assert batches[0][0]["item"].numpy().tolist() == table["item"].to_pylist()
    histories = table["history"].to_pylist()
    padded = [[0] * (LONGEST - len(row)) + row for row in histories]
    assert batches[0][0]["history"].numpy().tolist() == padded


def test_a_column_with_a_dot_in_its_name_is_fed(tmp_path):
    table = make_table(ROWS)
    names = {"item": "item.id", "history": "item.id.list"}
    table = table.rename_columns([names.get(name, name) for name in table.schema.names])
    columns = [column.with_name(names.get(column.name, column.name)) for column in make_schema()]
    path = write(tmp_path / "part.0.parquet", table)
    schema = Schema([column for column in columns if column.name != "row"])
    dataset = Dataset([path], engine="parquet", schema=schema, cpu=True)
    ((inputs, _),) = RowLoader(dataset, ROWS)
    assert inputs["item.id"].numpy().tolist() == table["item.id"].to_pylist()
    fed = [value for value in inputs["item.id.list"].numpy().ravel().tolist() if value]
    assert fed == sum(table["item.id.list"].to_pylist(), [])


@pytest.mark.parametrize("ending", ["", "\0x"])
def test_another_column_of_the_same_name_is_refused(tmp_path, ending):
    """Pandas ends a name at its zero byte, and dask then found two columns of one name."""
    dataset = Directory.open(write_sim_dataset(tmp_path))
    file = dataset.files("train")[0]
    table = pq.read_table(file)
    name = table.schema.names[1]
    pq.write_table(table.append_column(name + ending, table[1]), file)
    with pytest.raises(MerlinSimError, match=rf"{file}: one column {name} was expected"):
        open_loader(dataset, "train", dataset.schema.column_names, 4, Ranks())


def test_an_id_that_statistics_deny_is_found(tmp_path):
    """The page is changed, and the footer's smallest and largest value stay as they were."""
    options = {"use_dictionary": False, "compression": "none"}
    path = write(tmp_path / "part.0.parquet", make_table(ROWS), **options)
    with pq.ParquetFile(path) as file:
        chunk = file.metadata.row_group(1).column(2)
        assert chunk.path_in_schema == "item" and chunk.statistics.max <= 40
        stop = chunk.data_page_offset + chunk.total_compressed_size
    with open(path, "r+b") as stream:
        stream.seek(stop - 6)  # the third byte of the last id of rows 10 to 19
        byte = stream.read(1)[0]
        stream.seek(stop - 6)
        stream.write(bytes([byte ^ 0x20]))
    with pytest.raises(MerlinSimError, match=r"part.0.parquet, row 20: column item.*: 20971\d\d"):
        feed(path)


@pytest.mark.parametrize("name", ["item", "history"])
def test_floats_are_no_ids(tmp_path, name):
    values = make_table(ROWS)[name].to_pylist()
    path = write(tmp_path / "part.0.parquet", with_column(name, values, FLOAT[name]))
    message = rf"part.0.parquet: column {name} should hold .*whole numbers. Received: .*double"
    with pytest.raises(MerlinSimError, match=message):
        feed(path)
    fed = feed(path, float_schema(name))
    assert fed[0][0][name].dtype.is_integer


FLOAT = {"item": pa.float64(), "history": pa.list_(pa.float64())}


@pytest.mark.parametrize("name", ["item", "history"])
@pytest.mark.parametrize("value", [3.7, float("nan"), float("inf"), -0.5])
def test_ids_declared_as_floats_are_whole(tmp_path, name, value):
    values = make_table(ROWS)[name].to_pylist()
    values[17] = value if name == "item" else [1, value]
    path = write(tmp_path / "part.0.parquet", with_column(name, values, FLOAT[name]))
    message = (
        rf"part.0.parquet, row 18: column {name} holds an id that is not a whole number.*{value}"
    )
    with pytest.raises(MerlinSimError, match=message):
        feed(path, float_schema(name))


@pytest.mark.parametrize("missing", [None, [None], [1, None]])
@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.large_list(pa.uint16())])
def test_a_list_that_is_missing_is_no_empty_list(tmp_path, missing, kind):
    values = make_table(ROWS)["history"].to_pylist()
    values[23] = missing
    path = write(tmp_path / "part.0.parquet", with_column("history", values, kind))
    with pytest.raises(MerlinSimError, match="row 24: column history holds a missing value"):
        feed(path)


def test_ids_are_checked_before_int32_holds_them(tmp_path):
    values = make_table(ROWS)["item"].to_pylist()
    values[5] = 2**32 + 1
    path = write(tmp_path / "part.0.parquet", with_column("item", values))
    with pytest.raises(MerlinSimError, match=r"row 6: column item.*4294967297"):
        feed(path)
    untagged = [
        ColumnSchema(column.name, dtype=column.dtype, properties=column.properties)
        if column.name in ("item", "row")
        else column
        for column in make_schema()
    ]
    fed = feed(path, Schema(untagged))  # no table's ids: nothing is cut off
    assert fed[0][0]["item"].numpy()[5] == 2**32 + 1


def test_a_file_that_changes_between_epochs(tmp_path):
    path = write_files(tmp_path, [[ROWS]])[0]
    loader = RowLoader(open_dataset([path]), 8, data_memory_mb=0)
    assert sum(1 for _ in loader) == 4
    write_files(tmp_path, [[ROWS - 10, 10]])
    os.utime(path, ns=(1, 1))
    with pytest.raises(MerlinSimError, match=r"part.0.parquet changed while it was read"):
        list(loader)


def test_columns_are_found_by_name_wherever_they_stand(tmp_path):
    table = make_table(ROWS)
    paths = [write(tmp_path / "part.0.parquet", table)]
    turned = make_table(ROWS, ROWS).select(table.schema.names[::-1])
    paths.append(write(tmp_path / "part.1.parquet", turned))
    batches = [inputs for inputs, _ in RowLoader(open_dataset(paths), 10)]
    items = [batch["item"].numpy().tolist() for batch in batches]
    assert sum(items, []) == table["item"].to_pylist() + turned["item"].to_pylist()


def test_a_name_of_other_case_is_another_name(tmp_path):
    table = make_table(ROWS).rename_columns(["label", "row", "Item", "history", "text"])
    with pytest.raises(MerlinSimError, match="part.0.parquet lacks the columns item"):
        feed(write(tmp_path / "part.0.parquet", table))


@pytest.mark.parametrize(
    "kind", [pa.large_list(pa.int64()), pa.list_(pa.dictionary(pa.int8(), pa.int64()))]
)
def test_lists_of_other_forms_are_fed_as_they_are(tmp_path, kind):
    histories = make_table(ROWS)["history"].to_pylist()
    table = with_column("history", histories, kind if pa.types.is_large_list(kind) else None)
    if not pa.types.is_large_list(kind):
        values = table["history"].combine_chunks()
        coded = pa.ListArray.from_arrays(values.offsets, values.values.dictionary_encode())
        table = table.set_column(3, "history", coded)
    batches = feed(write(tmp_path / "part.0.parquet", table))
    fed = [row for inputs, _ in batches for row in inputs["history"].numpy().tolist()]
    assert fed == [[0] * (LONGEST - len(row)) + row for row in histories]


def test_files_of_types_that_only_floats_have_in_common(tmp_path):
    paths = []
    for number, kind in enumerate((pa.uint64(), pa.int64())):
        table = with_column("item", make_table(ROWS)["item"].to_pylist(), kind)
        paths.append(write(tmp_path / f"part.{number}.parquet", table))
    message = r"column item holds int64 in .*part.1.parquet and uint64 in .*part.0.parquet"
    with pytest.raises(MerlinSimError, match=message):
        list(RowLoader(open_dataset(paths), 8))


@pytest.mark.slow
def test_damaged_footers_are_refused_or_read(tmp_path):
    """Bits of a footer changed in turn: the same rows, or a message that names the file."""
    dataset = Directory.open(write_sim_dataset(tmp_path / "dataset", (30,), (20,)))
    path = dataset.files("train")[0]
    data = path.read_bytes()

    def rows():
        loader = open_loader(dataset, "train", dataset.schema.column_names, 10, Ranks())
        return [inputs["thing_seen"].numpy().tolist() for inputs, _ in loader]

    expected, outcomes = rows(), set()
    length = int.from_bytes(data[-8:-4], "little")
    random = np.random.default_rng(4)
    for place in random.permutation(np.arange(len(data) - 8 - length, len(data)))[:120]:
        changed = bytearray(data)
        changed[place] ^= 1 << random.integers(8)
        path.write_bytes(changed)
        try:
            fed = rows()
        except MerlinSimError as error:
            assert "part.0.parquet" in str(error)
            outcomes.add(str(error))
        else:
            assert fed == expected
    assert len(outcomes) > 20


def test_a_columns_name_that_is_no_text(tmp_path):
    dataset = Directory.open(write_sim_dataset(tmp_path / "dataset", (30,), (20,)))
    path = dataset.files("train")[0]
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    in_schema, in_row_group = data.index(b"thing_seen", footer), data.rindex(b"thing_seen")
    assert in_schema < in_row_group
    for place in (in_schema, in_row_group):
        path.write_bytes(data[:place] + b"\xff" + data[place + 1 :])
        with pytest.raises(MerlinSimError, match="part.0.parquet cannot be read as parquet"):
            open_loader(dataset, "train", dataset.schema.column_names, 10, Ranks())
    path.write_bytes(data[:in_schema] + b"\xff" + data[in_schema + 1 :])
    with pytest.raises(MerlinSimError, match="part.0.parquet"):
        Directory.open(tmp_path / "dataset")


def test_pages_that_would_end_behind_the_file(tmp_path):
    """As arrow does: what the footer says of a column's bytes is wrong, whatever they hold."""
    path = tmp_path / "rows.parquet"
    write(path, make_table(ROWS))
    group = pq.ParquetFile(path).metadata.row_group(2)
    columns = [group.column(number) for number in range(group.num_columns)]
    lists = [column for column in columns if column.path_in_schema.startswith("history.")]
    stored = _varint(2 * lists[0].total_compressed_size)
    data = path.read_bytes()
    longer = stored[:-1] + bytes([stored[-1] | 0x40])
    before, _, after = data.rpartition(stored)
    path.write_bytes(before + longer + after)
    with pytest.raises(
        MerlinSimError, match="rows.parquet is damaged in rows 21 to 30.*corrupt file"
    ):
        feed(str(path))


def _varint(number: int) -> bytes:
    """Write a whole number as a footer holds it, seven bits a byte."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
