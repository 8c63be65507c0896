"""What is stored comes piece by piece as numpy, whatever its form; damage is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
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

from merlin_sim.dataloader import stored_rows
from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.dataloader.row_check import DataError
from merlin_sim.dataloader.row_loader import RowLoader
from merlin_sim.dataloader.stored_rows import StoredRows
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.dataset import DatasetDirectory

COLUMNS = ["label", "history", "words"]
ROWS = 30


def write(path, histories, **options):
    words = pa.array([[1, 2]] * len(histories), pa.list_(pa.uint16()))
    table = pa.table({"label": range(len(histories)), "history": histories, "words": words})
    pq.write_table(table, path, **options)
    return path


def open_file(path):
    schema = Schema(
        [
            ColumnSchema("label", dtype=np.int64),
            ColumnSchema("history", dtype=np.int64, dims=(None, (0, 40))),
            ColumnSchema("words", dtype=np.uint16, dims=(None, (0, 2))),
        ]
    )
    return StoredRows([str(path)], schema)


def read(path, names=COLUMNS):
    stored = open_file(path)
    return list(stored.pieces(stored.parts[0], names))


def lists(pieces, name):
    bounds = [zip(p[name].offsets[:-1], p[name].offsets[1:], strict=True) for p in pieces]
    return [
        piece[name].values[a:b].tolist()
        for piece, pairs in zip(pieces, bounds, strict=True)
        for a, b in pairs
    ]


@pytest.mark.parametrize("piece_rows", [16384, 7])
@pytest.mark.parametrize("names", [COLUMNS[::-1], ["history"], ["label"]], ids=str)
def test_a_row_group_comes_in_pieces_with_as_many_rows_as_were_announced(
    tmp_path, monkeypatch, names, piece_rows
):
    monkeypatch.setattr(stored_rows, "PIECE_ROWS", piece_rows)
    histories = [[number] * (number % 4) for number in range(20)]
    path = write(tmp_path / "file", histories)
    pieces = read(path, names)
    assert len(pieces) == -(-20 // piece_rows) and all(list(piece) == names for piece in pieces)
    if "history" in names:
        assert lists(pieces, "history") == histories
    if "words" in names:
        assert lists(pieces, "words") == [[1, 2]] * 20
    if "label" in names:
        labels = np.concatenate([piece["label"].values for piece in pieces])
        assert labels.tolist() == list(range(20))
    stored = open_file(path)
    for rows, fault in ((21, "1 rows are missing"), (19, "more rows than were")):
        with pytest.raises(DataError, match=rf"file is damaged in rows 1 to {rows} .*{fault}"):
            list(stored.pieces(stored.parts[0]._replace(rows=rows), names))


def test_a_value_outside_the_bounds_that_the_file_promises_is_damage(tmp_path):
    path = write(tmp_path / "file", [[5, 6], [0]] * 10, compression="none")
    assert read(path)[0]["history"].bounds == (0, 6)
    six, data = (6).to_bytes(8, "little"), path.read_bytes()
    start = pq.ParquetFile(path).metadata.row_group(0).column(1).dictionary_page_offset
    wrong = data[start:].replace(six, (1_000_000).to_bytes(8, "little"), 1)
    path.write_bytes(data[:start] + wrong)
    message = "history has values of 0 to 1000000 where the file promises 0 to 6"
    with pytest.raises(DataError, match=message):
        read(path)


def test_an_id_that_statistics_deny_is_found(tmp_path):
    """The page is changed, and the footer's smallest and largest value stay as they were."""
    path = tmp_path / "part.0.parquet"
    options = {"use_dictionary": False, "compression": "none", "row_group_size": 10}
    pq.write_table(make_table(ROWS), path, **options)
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(2)
    assert chunk.path_in_schema == "item" and chunk.statistics.max <= 40
    # The third byte of the last id of rows 10 to 19.
    index = chunk.data_page_offset + chunk.total_compressed_size - 6
    data = bytearray(path.read_bytes())
    data[index] ^= 0x20
    path.write_bytes(data)
    with pytest.raises(MerlinSimError, match=r"part.0.parquet, row 20: column item.*: 20971\d\d"):
        list(RowLoader(open_dataset([str(path)]), 8))


def test_a_damaged_page_and_pages_that_would_end_behind_the_file(tmp_path):
    path = write_files(tmp_path, [[2000, 2000]])[0]
    start = pq.ParquetFile(path).metadata.row_group(1).column(3).data_page_offset
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(b"\xff" * 400)
    with pytest.raises(MerlinSimError, match=r"part.0.parquet is damaged in rows 2001 to 4000"):
        list(RowLoader(open_dataset([path]), 100))
    # As arrow does: what the footer says of a column's bytes is wrong, whatever they hold.
    path = tmp_path / "rows.parquet"
    pq.write_table(make_table(ROWS), path, row_group_size=10)
    group = pq.ParquetFile(path).metadata.row_group(2)
    columns = [group.column(number) for number in range(group.num_columns)]
    found = [column for column in columns if column.path_in_schema.startswith("history.")]
    stored = _varint(2 * found[0].total_compressed_size)
    longer = stored[:-1] + bytes([stored[-1] | 0x40])
    before, _, after = path.read_bytes().rpartition(stored)
    path.write_bytes(before + longer + after)
    message = "rows.parquet is damaged in rows 21 to 30.*corrupt file"
    with pytest.raises(MerlinSimError, match=message):
        list(RowLoader(open_dataset([str(path)]), 8))


def _varint(number: int) -> bytes:
    """Write a whole number as a footer holds it, seven bits a byte."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def test_a_footer_whose_name_of_a_column_is_no_text_is_refused(tmp_path):
    dataset = DatasetDirectory.open(write_sim_dataset(tmp_path / "dataset", (30,), (20,)))
    path = dataset.files("train")[0]
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    in_schema, in_row_group = data.index(b"thing_seen", footer), data.rindex(b"thing_seen")
    assert in_schema < in_row_group
    for index in (in_row_group, in_schema):
        path.write_bytes(data[:index] + b"\xff" + data[index + 1 :])
        with pytest.raises(MerlinSimError, match="part.0.parquet cannot be read as parquet"):
            open_loader(dataset, "train", dataset.schema.column_names, 10, Ranks())
    with pytest.raises(MerlinSimError, match="part.0.parquet"):
        DatasetDirectory.open(tmp_path / "dataset")


def padded(histories):
    return [[0] * (LONGEST - len(row)) + row for row in histories]


def test_columns_are_found_by_their_whole_names_wherever_they_stand(tmp_path):
    table = make_table(ROWS)
    turned = make_table(ROWS, ROWS).select(table.schema.names[::-1])
    records = pa.array([{"x": 5}] * ROWS)
    dotted = table.append_column("history.x", pa.array([[7, 7]] * ROWS))
    dotted = dotted.add_column(0, "history.list.element", pa.array([[8]] * ROWS))
    dotted = dotted.append_column("item.x", pa.array([3] * ROWS)).append_column("label.a", records)
    paths = [str(tmp_path / f"part.{number}.parquet") for number in range(3)]
    for path, stored in zip(paths, (table, turned, dotted), strict=True):
        pq.write_table(stored, path, row_group_size=10)
    batches = [inputs for inputs, _ in RowLoader(open_dataset(paths), 10)]
    items = [batch["item"].numpy().tolist() for batch in batches]
    histories = [batch["history"].numpy().tolist() for batch in batches]
    of_all = [stored.select(["item", "history"]) for stored in (table, turned, dotted)]
    expected = pa.concat_tables(of_all).to_pydict()
    assert sum(items, []) == expected["item"]
    assert sum(histories, []) == padded(expected["history"])


def test_a_column_with_a_dot_in_its_name_is_fed(tmp_path):
    table = make_table(ROWS)
    names = {"item": "item.id", "history": "item.id.list"}
    table = table.rename_columns([names.get(name, name) for name in table.schema.names])
    columns = [column.with_name(names.get(column.name, column.name)) for column in make_schema()]
    pq.write_table(table, tmp_path / "part.0.parquet")
    schema = Schema([column for column in columns if column.name != "row"])
    path = str(tmp_path / "part.0.parquet")
    ((inputs, _),) = RowLoader(Dataset([path], engine="parquet", schema=schema, cpu=True), ROWS)
    assert inputs["item.id"].numpy().tolist() == table["item.id"].to_pylist()
    assert inputs["item.id.list"].numpy().tolist() == padded(table["item.id.list"].to_pylist())


@pytest.mark.parametrize("form", ["large list", "fixed size", "dictionary"])
def test_lists_of_other_forms_are_fed_as_they_are(tmp_path, form):
    table = make_table(ROWS)
    histories = table["history"].to_pylist()
    values = table["history"].combine_chunks()
    if form == "large list":
        column = pa.array(histories, pa.large_list(pa.int64()))
    elif form == "fixed size":
        column = pa.array(padded(histories), pa.list_(pa.int64(), LONGEST))
    else:
        column = pa.ListArray.from_arrays(values.offsets, values.values.dictionary_encode())
    pq.write_table(table.set_column(3, "history", column), tmp_path / "part.0.parquet")
    batches = RowLoader(open_dataset([str(tmp_path / "part.0.parquet")]), 8)
    fed = [row for inputs, _ in batches for row in inputs["history"].numpy().tolist()]
    assert fed == padded(histories)


def test_rows_read_on_the_host_stay_on_the_device_of_the_model(tmp_path, monkeypatch):
    path = write(tmp_path / "rows.parquet", [[1, 2], [3], []])
    on_cpu = open_file(path).read([0], 4)
    [cpu] = tf.config.list_logical_devices("CPU")
    copied = []
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: [cpu])  # for a GPU
    monkeypatch.setattr(tf, "identity", lambda tensor: copied.append(tensor) or tensor)
    stored = open_file(path)
    on_gpu = stored.read([0], 4)
    assert len(copied) == len(on_gpu) == 3
    # What a function is given of int32 is on the host, and is copied in every step.
    assert {tensor.dtype for tensor in on_gpu.values()} == {tf.int64}
    assert stored.bytes_of_row == 8 * (1 + 40 + 2)
    for name, expected in on_cpu.items():
        np.testing.assert_array_equal(on_gpu[name], expected)
