"""Rows of parquet in pieces; columns of unequal lengths, with which arrow ends the process."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damaged_page import ROWS, write_damaged
from in_process import run

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.parquet import file_pieces, row_pieces


@pytest.fixture
def damaged(tmp_path):
    (tmp_path / "dataset").mkdir()
    return write_damaged(tmp_path / "dataset")


@pytest.mark.parametrize("rows", [ROWS, ROWS - 1, 50])
@pytest.mark.parametrize("use_threads", [True, False])
def test_columns_of_unequal_lengths_are_refused(damaged, rows, use_threads):
    with pq.ParquetFile(damaged) as file, pytest.raises(pa.ArrowInvalid, match="device"):
        list(row_pieces(file, 0, ["clicked", "site", "device", "age"], rows, use_threads))


@pytest.mark.parametrize("rows", [1, 7, 30, 300, 1000])
def test_pieces_are_the_rows(tmp_path, rows):
    table = pa.table({"a": list(range(1000)), "a.b": [float(n) for n in range(1000)]})
    table = table.append_column("c", pa.array([[n] * (n % 3) for n in range(1000)]))
    pq.write_table(table, tmp_path / "file.parquet", row_group_size=300)
    with pq.ParquetFile(tmp_path / "file.parquet") as file:
        pieces = list(file_pieces(file, ["c", "a", "a.b"], rows))
    assert max(piece.num_rows for piece in pieces) <= max(rows, 1)
    found = pa.concat_tables(
        pa.Table.from_batches([piece]).select(["c", "a", "a.b"]) for piece in pieces
    )
    assert found.equals(table.select(["c", "a", "a.b"]))


def test_commands_name_the_file(damaged, tmp_path):
    dataset = damaged.parents[1]
    with pytest.raises(MerlinSimError, match=str(damaged)):
        run("check", dataset)
    with pytest.raises(MerlinSimError, match=str(damaged)):
        run("transcode", "--input", dataset, "--output", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
