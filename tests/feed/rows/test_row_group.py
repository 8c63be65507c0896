from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_sim.feed.pages.page_header import PageError
from merlin_sim.feed.rows import row_group
from merlin_sim.feed.rows.decoded_rows import ListColumn
from merlin_sim.feed.rows.row_group import column_readers

COLUMNS = ["label", "history", "words"]
COUNTS = [7, 7, 6]


def write(path, histories):
    words = pa.array([[1, 2]] * len(histories), pa.list_(pa.uint16()))  # arrow's, not pages'
    table = pa.table({"label": range(len(histories)), "history": histories, "words": words})
    pq.write_table(table, path)
    return path


def read(path, columns, counts=COUNTS, name=None):
    """Read pieces of so many rows, one part after the other."""
    pieces = [{} for _ in counts]
    with pq.ParquetFile(path) as file:
        for part in column_readers(file, name or str(path), 0, columns):
            for piece, count in zip(pieces, counts, strict=True):
                piece.update(part.read(count))
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
def test_a_row_group_comes_in_pieces_whoever_decodes_its_columns(
    tmp_path, monkeypatch, columns, batch_rows
):
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
def test_arrow_goes_on_where_something_is_missing(tmp_path, missing, shown):
    histories = [[number] for number in range(20)]
    histories[16] = missing
    pieces = read(write(tmp_path / "file", histories), COLUMNS)
    found = lists(pieces, "history")
    assert found[:16] + found[17:] == histories[:16] + histories[17:]
    assert found[16] == shown
    assert [piece["history"].missing for piece in pieces] == [None, None, 2]


def test_a_file_that_is_not_local_is_arrows(tmp_path, monkeypatch):
    monkeypatch.setattr(row_group, "ListColumnReader", None)
    path = write(tmp_path / "file", [[1], [2, 3]])
    pieces = read(path, ["history"], [2], name="bucket/file")
    assert lists(pieces, "history", [2]) == [[1], [2, 3]]


@pytest.mark.parametrize("column", ["label", "history"])
def test_rows_that_are_not_there_are_missed(tmp_path, column):
    path = write(tmp_path / "file", [[1]] * 20)
    with pytest.raises(PageError, match=r"\d+ (rows|lists) are missing"):
        read(path, [column], [7, 14])
