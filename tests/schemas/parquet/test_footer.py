"""Footers that cannot be read, columns of another type: a message names file and column."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.parquet import UnreadableFooter, read_footer


def test_a_footer_with_any_flipped_bit_is_read_or_refused_by_name(tmp_path):
    file = tmp_path / "part.0.parquet"
    pq.write_table(pa.table({"reader": [1, 2], "read": [[1], [2, 3]]}), file)
    whole = file.read_bytes()
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    refused = 0
    for place in range(start, len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x80
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


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pa.nulls(40), "nulls only (null)"),
        (pa.array([Decimal(1)] * 40), "decimal numbers (decimal128(1, 0))"),
        (pa.array([1] * 40, pa.timestamp("us")), "times (timestamp[us])"),
        (pa.array([1] * 40, pa.date32()), "dates (date32[day])"),
        (pa.array(["1"] * 40), "text (string)"),
        (pa.array([1.0] * 40), "floating-point numbers (double)"),
        (pa.array([[1]] * 40), "lists of whole numbers (list<item: int64>)"),
    ],
)
def test_a_column_of_another_type_is_told_in_words(directory, values, words):
    file = directory / "train" / "part.10.parquet"
    table = pq.read_table(file)
    place = table.column_names.index("user_id")
    pq.write_table(table.set_column(place, "user_id", values), file)
    with pytest.raises(MerlinSimError) as caught:
        DatasetDirectory.open(directory)
    received = str(pq.read_schema(file).field("user_id").type)
    words = words.replace("list<item: int64>", received)
    expected = "expected one value a row, whole numbers (dtype int64), got "
    assert f"part.10.parquet: user_id: {expected}{words}" in str(caught.value)


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint32(), pa.dictionary(pa.int8(), pa.int64())])
def test_whole_numbers_of_any_width_are_ids(directory, kind):
    file = directory / "train" / "part.10.parquet"
    table = pq.read_table(file)
    place = table.column_names.index("user_id")
    values = table["user_id"].combine_chunks()
    stored = values.dictionary_encode() if pa.types.is_dictionary(kind) else values.cast(kind)
    pq.write_table(table.set_column(place, "user_id", stored), file)
    assert DatasetDirectory.open(directory).spec.feature_spec["user_id"].dtype == "int64"
