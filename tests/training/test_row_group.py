from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_sim.training import row_group
from merlin_sim.training.columns import ListColumn
from merlin_sim.training.row_group import read_row_group

COLUMNS = ["label", "history", "words"]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(row_group, "CHUNK_ROWS", 7)


def write(path, histories):
    words = pa.array([[1, 2]] * len(histories), pa.list_(pa.uint16()))  # arrow's, not pages'
    table = pa.table({"label": range(len(histories)), "history": histories, "words": words})
    pq.write_table(table, path)
    return path


def read(path, columns):
    with pq.ParquetFile(path) as file:
        return list(read_row_group(file, str(path), 0, columns))


def lists(pieces, name):
    found = []
    for columns, count in pieces:
        column = columns[name]
        assert isinstance(column, ListColumn) and len(column.offsets) == count + 1
        bounds = zip(column.offsets[:-1], column.offsets[1:], strict=True)
        found += [column.values[a:b].tolist() for a, b in bounds]
    return found


@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS[::-1], ["history"], ["label", "words"]])
def test_a_row_group_comes_in_pieces_whoever_decodes_its_columns(tmp_path, columns):
    histories = [[number] * (number % 4) for number in range(20)]
    pieces = read(write(tmp_path / "file", histories), columns)
    assert [count for _, count in pieces] == [7, 7, 6]
    assert all(list(piece) == columns for piece, _ in pieces)
    if "history" in columns:
        assert lists(pieces, "history") == histories
    if "label" in columns:
        labels = np.concatenate([piece["label"].values for piece, _ in pieces])
        assert labels.tolist() == list(range(20))


def test_arrow_goes_on_where_an_element_is_missing(tmp_path):
    histories = [[number] for number in range(20)]
    histories[16] = [16, None]
    pieces = read(write(tmp_path / "file", histories), COLUMNS)
    assert [count for _, count in pieces] == [7, 7, 6]
    found = lists(pieces, "history")
    assert found[:16] + found[17:] == histories[:16] + histories[17:]
    assert found[16][0] == 16 and np.isnan(found[16][1])
    assert pieces[-1][0]["history"].nulls == 1


def test_a_file_that_is_not_local_is_arrows(tmp_path, monkeypatch):
    monkeypatch.setattr(row_group, "ListColumnReader", None)
    path = write(tmp_path / "file", [[1], [2, 3]])
    with pq.ParquetFile(path) as file:
        assert lists(read_row_group(file, "bucket/file", 0, ["history"]), "history") == [
            [1],
            [2, 3],
        ]
