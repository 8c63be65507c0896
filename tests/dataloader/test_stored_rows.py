"""What is stored comes piece by piece as numpy, or is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema

from merlin_sim.dataloader import stored_rows
from merlin_sim.dataloader.arrow_columns import decode
from merlin_sim.dataloader.row_check import DataError
from merlin_sim.dataloader.stored_rows import StoredRows

COLUMNS = ["label", "history", "words"]
LISTS = [[1, 2], None, [3, 4], [5, None]]


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, lambda of: pa.list_(of, 2)])
@pytest.mark.parametrize("start, missing", [(0, 1), (1, 0), (2, 1)])
def test_slices_of_lists_begin_at_zero_and_report_what_is_missing(kind, start, missing):
    column = decode(pa.array(LISTS, kind(pa.int64())).slice(start))
    assert column.missing == missing and column.values.dtype == np.int64
    assert column.offsets[0] == 0 and column.offsets[-1] == len(column.values)
    for row, values in enumerate(LISTS[start:]):
        if values is not None:
            found = column.values[column.offsets[row] : column.offsets[row + 1]]
            assert found.tolist() == [value or 0 for value in values]


@pytest.mark.parametrize("kind, shown", [(pa.int8(), 0), (pa.bool_(), 0), (pa.float32(), np.nan)])
def test_what_is_missing_keeps_its_type(kind, shown):
    column = decode(pa.chunked_array([pa.array([1, None, None]).cast(kind)]))
    assert column.missing == 1 and column.values.dtype == kind.to_pandas_dtype()
    np.testing.assert_array_equal(column.values, [1, shown, shown])


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
@pytest.mark.parametrize("names", [COLUMNS, COLUMNS[::-1], ["history"], ["label", "words"]])
def test_a_row_group_comes_in_pieces(tmp_path, monkeypatch, names, piece_rows):
    monkeypatch.setattr(stored_rows, "PIECE_ROWS", piece_rows)
    histories = [[number] * (number % 4) for number in range(20)]
    pieces = read(write(tmp_path / "file", histories), names)
    assert len(pieces) == -(-20 // piece_rows) and all(list(piece) == names for piece in pieces)
    if "history" in names:
        assert lists(pieces, "history") == histories
    if "words" in names:
        assert lists(pieces, "words") == [[1, 2]] * 20
    if "label" in names:
        labels = np.concatenate([piece["label"].values for piece in pieces])
        assert labels.tolist() == list(range(20))


@pytest.mark.parametrize("names", [["label"], ["history"]])
@pytest.mark.parametrize("rows, fault", [(21, "1 rows are missing"), (19, "more rows than were")])
@pytest.mark.parametrize("piece_rows", [16384, 7])
def test_rows_are_as_many_as_were_announced(tmp_path, monkeypatch, names, rows, fault, piece_rows):
    monkeypatch.setattr(stored_rows, "PIECE_ROWS", piece_rows)
    stored = open_file(write(tmp_path / "file", [[1]] * 20))
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


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_damaged_bytes_are_refused_or_read_and_never_crash(tmp_path, version, compression):
    random = np.random.default_rng(1)
    histories = [random.integers(0, 50, random.integers(0, 40)).tolist() for _ in range(60)]
    options = {"data_page_version": version, "compression": compression, "data_page_size": 300}
    path = write(tmp_path / "file", histories, **options)
    data = path.read_bytes()
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(1)
    start = chunk.dictionary_page_offset
    outcomes = set()
    for _ in range(100):
        changed = bytearray(data)
        for place in random.integers(0, chunk.total_compressed_size, random.integers(1, 5)):
            changed[start + place] = random.integers(0, 256)
        path.write_bytes(changed)
        try:
            (piece,) = read(path, ["history"])
        except DataError as error:
            outcomes.add(str(error))
            continue
        offsets = piece["history"].offsets
        assert len(offsets) == 61 and offsets[-1] == len(piece["history"].values)
        assert (np.diff(offsets) >= 0).all()
    assert len(outcomes) > 5


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
