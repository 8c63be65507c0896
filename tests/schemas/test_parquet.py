"""Parquet files as they are stored: footers, columns, and rows in pieces."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damaged_page import ROWS, write_damaged
from in_process import run

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.parquet import UnreadableFooter, file_pieces, read_footer, row_pieces


def test_a_footer_with_any_flipped_bit_is_read_or_refused_by_name(tmp_path):
    file = tmp_path / "part.0.parquet"
    pq.write_table(pa.table({"reader": [1, 2], "read": [[1], [2, 3]]}), file)
    whole = file.read_bytes()
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    refused = 0
    for index in range(start, len(whole)):
        damaged = bytearray(whole)
        damaged[index] ^= 0x80
        file.write_bytes(damaged)
        try:
            read_footer(file)
        except UnreadableFooter as error:
            assert str(error).startswith(f"{file}: expected a parquet file, got ")
            refused += 1
    assert refused > 100


def test_a_columns_name_that_is_no_text(directory):
    file = directory / "test" / "part.0.parquet"
    file.write_bytes(file.read_bytes().replace(b"user_id", b"\xffser_id"))
    with pytest.raises(MerlinSimError, match=r"part\.0\.parquet: expected .*, got a name that"):
        DatasetDirectory.open(directory)


def put_users(file, values):
    table = pq.read_table(file)
    index = table.column_names.index("user_id")
    pq.write_table(table.set_column(index, "user_id", values), file)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pa.nulls(40), "nulls only (null)"),
        (pa.array([Decimal(1)] * 40), "decimal numbers (decimal128(1, 0))"),
        (pa.array([1] * 40, pa.timestamp("us")), "times (timestamp[us])"),
        (pa.array([1.0] * 40), "floating-point numbers (double)"),
        (pa.array([[1]] * 40), "lists of whole numbers (list<item: int64>)"),
    ],
)
def test_a_column_of_another_type_is_reported_in_words(directory, values, words):
    file = directory / "train" / "part.10.parquet"
    put_users(file, values)
    with pytest.raises(MerlinSimError) as caught:
        DatasetDirectory.open(directory)
    received = str(pq.read_schema(file).field("user_id").type)
    words = words.replace("list<item: int64>", received)
    expected = "expected one value a row, whole numbers (dtype int64), got "
    assert f"part.10.parquet: user_id: {expected}{words}" in str(caught.value)


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint32(), pa.dictionary(pa.int8(), pa.int64())])
def test_whole_numbers_of_any_width_are_ids(directory, kind):
    file = directory / "train" / "part.10.parquet"
    values = pq.read_table(file)["user_id"].combine_chunks()
    stored = values.dictionary_encode() if pa.types.is_dictionary(kind) else values.cast(kind)
    put_users(file, stored)
    assert DatasetDirectory.open(directory).spec.feature_spec["user_id"].dtype == "int64"


@pytest.fixture
def damaged(tmp_path):
    (tmp_path / "dataset").mkdir()
    return write_damaged(tmp_path / "dataset")


def test_columns_of_unequal_lengths_are_refused(damaged):
    columns = ["clicked", "site", "device", "age"]
    for rows in [ROWS, ROWS - 1, 50]:
        with pq.ParquetFile(damaged) as file, pytest.raises(pa.ArrowInvalid, match="device"):
            list(row_pieces(file, 0, columns, rows))


@pytest.mark.parametrize("rows", [1, 7, 1000])
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
        run("data", "check", "--dataset_dir", dataset)
    with pytest.raises(MerlinSimError, match=str(damaged)):
        run("data", "transcode", "--input", dataset, "--output", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
