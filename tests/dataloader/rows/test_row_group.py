from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_sim.dataloader.data_error import READ_ERRORS, DamageError
from merlin_sim.dataloader.rows import row_group
from merlin_sim.dataloader.rows.decoded_rows import ListColumn
from merlin_sim.dataloader.rows.row_group import column_readers

COLUMNS = ["label", "history", "words"]
COUNTS = [7, 7, 6]


def write(path, histories, **options):
    words = pa.array([[1, 2]] * len(histories), pa.list_(pa.uint16()))
    table = pa.table({"label": range(len(histories)), "history": histories, "words": words})
    pq.write_table(table, path, **options)
    return path


def read(path, columns, counts=COUNTS, name=None):
    """Read pieces of so many rows, one part after the other."""
    pieces = [{} for _ in counts]
    with pq.ParquetFile(path) as file:
        for part in column_readers(file, name or str(path), 0, columns):
            for piece, count in zip(pieces, counts, strict=True):
                piece.update(part.read(count))
            part.finish()
    return pieces


def lists(pieces, name, counts=COUNTS):
    found = []
    for columns, count in zip(pieces, counts, strict=True):
        column = columns[name]
        assert isinstance(column, ListColumn) and len(column.offsets) == count + 1
        bounds = zip(column.offsets[:-1], column.offsets[1:], strict=True)
        found += [column.values[a:b].tolist() for a, b in bounds]
    return found


@pytest.mark.parametrize("batch_rows", [16384, 3])
@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS[::-1], ["history"], ["label", "words"]])
def test_a_row_group_comes_in_pieces(tmp_path, monkeypatch, columns, batch_rows):
    monkeypatch.setattr(row_group, "CHUNK_ROWS", batch_rows)  # of arrow's batches
    histories = [[number] * (number % 4) for number in range(20)]
    pieces = read(write(tmp_path / "file", histories), columns)
    assert all(set(piece) == set(columns) for piece in pieces)
    if "history" in columns:
        assert lists(pieces, "history") == histories
    if "words" in columns:
        assert lists(pieces, "words") == [[1, 2]] * 20
    if "label" in columns:
        labels = [piece["label"].values for piece in pieces]
        assert [len(values) for values in labels] == COUNTS
        assert np.concatenate(labels).tolist() == list(range(20))


@pytest.mark.parametrize("missing, shown", [([16, None], [16, 0]), (None, [])])
def test_what_is_missing_is_told(tmp_path, missing, shown):
    histories = [[number] for number in range(20)]
    histories[16] = missing
    pieces = read(write(tmp_path / "file", histories), COLUMNS)
    found = lists(pieces, "history")
    assert found[:16] + found[17:] == histories[:16] + histories[17:]
    assert found[16] == shown
    assert [piece["history"].missing for piece in pieces] == [None, None, 2]


def test_the_columns_of_a_file_that_is_not_local_are_read_together(tmp_path):
    path = write(tmp_path / "file", [[1], [2, 3]])
    with pq.ParquetFile(path) as file:
        (part,) = column_readers(file, "bucket/file", 0, COLUMNS)
        columns = part.read(2)
    assert list(columns) == COLUMNS
    assert lists([columns], "history", [2]) == [[1], [2, 3]]


@pytest.mark.parametrize("column", ["label", "history"])
def test_rows_that_are_not_there_are_missed(tmp_path, column):
    path = write(tmp_path / "file", [[1]] * 20)
    with pytest.raises(DamageError, match="1 rows are missing"):
        read(path, [column], [7, 14])


@pytest.mark.parametrize("column", ["label", "history"])
@pytest.mark.parametrize("batch_rows", [16384, 7])
def test_rows_that_nobody_read_are_missed(tmp_path, monkeypatch, column, batch_rows):
    monkeypatch.setattr(row_group, "CHUNK_ROWS", batch_rows)
    path = write(tmp_path / "file", [[1]] * 20)
    with pytest.raises(DamageError, match="more rows than were announced"):
        read(path, [column], [7, 7])


def test_a_value_outside_the_bounds_that_the_file_promises_is_damage(tmp_path):
    path = write(tmp_path / "file", [[5, 6], [0]] * 10, compression="none")
    assert read(path, ["history"])[0]["history"].bounds == (0, 6)
    six, data = (6).to_bytes(8, "little"), path.read_bytes()
    start = pq.ParquetFile(path).metadata.row_group(0).column(1).dictionary_page_offset
    wrong = data[start:].replace(six, (1_000_000).to_bytes(8, "little"), 1)
    path.write_bytes(data[:start] + wrong)
    message = "history has values of 0 to 1000000 where the file promises 0 to 6"
    with pytest.raises(DamageError, match=message):
        read(path, ["history"])


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
            (piece,) = read(path, ["history"], [60])
        except READ_ERRORS as error:
            outcomes.add(str(error))
            continue
        offsets = piece["history"].offsets
        assert len(offsets) == 61 and offsets[-1] == len(piece["history"].values)
        assert (np.diff(offsets) >= 0).all()
    assert len(outcomes) > 5
