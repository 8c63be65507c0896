"""Lists read from their pages are the lists that arrow reads."""

from __future__ import annotations

import contextlib
import zlib
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merlin_sim.feed.pages.list_column import ListColumnReader, MissingValue
from merlin_sim.feed.pages.list_form import list_form
from merlin_sim.feed.pages.page_header import (
    DICTIONARY_PAGE,
    RLE_DICTIONARY,
    PageError,
    read_page_header,
)

TYPES = {
    pa.int8(): st.integers(-128, 127),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
}
SMALL = st.integers(1, 6)
FULL = [[number % 7 for number in range(100)]] * 8


@st.composite
def columns(draw):
    """Lists, short and long, and the ways in which a writer may store them."""
    kind = draw(st.sampled_from(list(TYPES)))
    value = TYPES[kind]
    few = st.sampled_from(draw(st.lists(value, min_size=1, max_size=5)))
    sizes = st.integers(0, 9) | st.sampled_from([20, 100])
    nullable = draw(st.booleans())
    lists = []
    for size in draw(st.lists(sizes, min_size=1, max_size=25)):
        repeated = draw(st.booleans())
        lists.append(draw(st.lists(few if repeated else value, min_size=size, max_size=size)))
        if nullable and draw(st.integers(0, 9)) == 0:
            lists.append(None)
    make = draw(st.sampled_from([pa.list_, pa.large_list]))
    elements = pa.field("element", kind, nullable=draw(st.booleans()))
    field = pa.field("history", make(elements), nullable=nullable)
    table = pa.table([pa.array(lists, field.type)], schema=pa.schema([field]))
    options = {
        "compression": draw(st.sampled_from(["none", "snappy", "gzip", "zstd", "brotli"])),
        "use_dictionary": draw(st.booleans()),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "data_page_size": draw(st.sampled_from([1, 30, 200, 2**20])),
        "dictionary_pagesize_limit": draw(st.sampled_from([16, 2**20])),
        "write_batch_size": draw(st.sampled_from([1, 7, 1024])),
        "write_statistics": draw(st.booleans()),
        "row_group_size": draw(st.sampled_from([10, 1000])),
    }
    return table, options


def write(path, table, **options):
    pq.write_table(table, path, **options)
    return path


def column_of(path, group=0, change=lambda data: data):
    """The reader of the only column of a file, the column's bytes changed on the way."""
    with pq.ParquetFile(path) as file:
        chunk = file.metadata.row_group(group).column(0)
        form = list_form(file.schema_arrow.field(0), file.schema.column(0), chunk)
    start = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
    data = path.read_bytes()[start : start + chunk.total_compressed_size]
    return ListColumnReader(pa.py_buffer(change(data)), form, chunk)


def lists_of(values, offsets):
    return [values[a:b].tolist() for a, b in zip(offsets[:-1], offsets[1:], strict=True)]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(columns(), st.lists(SMALL, min_size=30, max_size=30))
def test_the_lists_are_those_of_arrow_however_they_are_stored_and_asked_for(
    tmp_path_factory, column, counts
):
    table, options = column
    path = write(tmp_path_factory.mktemp("column") / "lists.parquet", table, **options)
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            expected = file.read_row_group(group).column(0).to_pylist()
            reader, read = column_of(path, group), []
            while len(read) < len(expected):
                count = min(counts.pop(), len(expected) - len(read))
                try:
                    values, offsets = reader.read(count)
                except MissingValue:  # in a page, which may reach beyond the lists asked for
                    assert None in expected[len(read) :]
                    break
                assert offsets[0] == 0 and offsets[-1] == len(values)
                read += lists_of(values, offsets)
                counts = counts or [1000]
            else:
                reader.finish()
                assert None not in expected
            assert read == expected[: len(read)]


@pytest.mark.parametrize(
    "largest, kind",
    [
        (2**15 - 1, np.int16),
        (2**15, np.int32),
        (2**31 - 1, np.int32),
        (2**31, np.int64),
        (2**63 - 1, np.int64),
    ],
)
def test_integers_are_as_short_as_their_bounds_allow(tmp_path, largest, kind):
    path = write(tmp_path / "bounds", pa.table({"history": [[-5, 2], [largest]]}))
    values, _ = column_of(path).read(2)
    assert values.dtype == kind and values.tolist() == [-5, 2, largest]


def test_integers_of_unknown_bounds_stay_as_long_as_they_are_stored(tmp_path):
    table = pa.table({"history": [[1, 2], [3]]})
    path = write(tmp_path / "unknown", table, write_statistics=False)
    assert column_of(path).read(2)[0].dtype == np.int64


@pytest.mark.parametrize("missing", [None, [2, None], [None]])
def test_what_is_missing_is_not_guessed(tmp_path, missing):
    path = write(tmp_path / "lists", pa.table({"history": [[1], [], missing]}))
    with pytest.raises(MissingValue):
        column_of(path).read(3)


def test_lists_that_nobody_read_are_missed(tmp_path):
    reader = column_of(write(tmp_path / "lists", pa.table({"history": [[1], [2], [3]]})))
    reader.read(2)
    with pytest.raises(PageError, match="more lists"):
        reader.finish()


@pytest.mark.parametrize(
    "kind",
    [pa.int64(), pa.list_(pa.list_(pa.int64())), pa.list_(pa.string()), pa.list_(pa.bool_())],
)
def test_other_columns_are_left_to_arrow(tmp_path, kind):
    field = pa.field("column", kind)
    path = write(tmp_path / "file", pa.table([pa.array([None], kind)], schema=pa.schema([field])))
    with pq.ParquetFile(path) as file:
        chunk = file.metadata.row_group(0).column(0)
        assert list_form(field, file.schema.column(0), chunk) is None


def test_other_encodings_are_left_to_arrow(tmp_path):
    table = pa.table({"history": FULL})
    encoding = {"history.list.element": "DELTA_BINARY_PACKED"}
    path = write(tmp_path / "file", table, use_dictionary=False, column_encoding=encoding)
    with pq.ParquetFile(path) as file:
        chunk = file.metadata.row_group(0).column(0)
        assert list_form(file.schema_arrow.field(0), file.schema.column(0), chunk) is None


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_damaged_bytes_are_refused_or_read_and_never_crash(tmp_path, version, compression):
    random = np.random.default_rng(1)
    lists = [random.integers(0, 50, random.integers(0, 40)).tolist() for _ in range(60)] + FULL
    options = {"data_page_version": version, "compression": compression, "data_page_size": 300}
    path = write(tmp_path / "file", pa.table({"history": lists}), **options)

    def damage(data):
        changed = bytearray(data)
        for place in random.integers(0, len(data), random.integers(1, 5)):
            changed[place] = random.integers(0, 256)
        return bytes(changed[: len(data) if random.random() < 0.8 else place])

    outcomes = set()
    for _ in range(400):
        try:
            values, offsets = column_of(path, change=damage).read(len(lists))
        except (PageError, MissingValue, OSError, pa.ArrowException) as error:
            outcomes.add(str(error))
            continue
        assert len(offsets) == len(lists) + 1 and offsets[-1] == len(values)
        assert (np.diff(offsets) >= 0).all()
    assert len(outcomes) > 5


def varint(value):
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def with_checksum(data, checksum):
    """Add field 4 to the first page's header: arrow writes none."""
    end = 0
    for _ in range(3):  # the fields before it, one integer each
        end += 1
        while data[end] & 128:
            end += 1
        end += 1
    signed = checksum - 2**32 if checksum >= 2**31 else checksum
    field = b"\x15" + varint(2 * signed if signed >= 0 else -2 * signed - 1)
    return data[:end] + field + bytes([data[end] - 16]) + data[end + 1 :]


@pytest.mark.parametrize("wrong", [False, True])
def test_a_checksum_is_held_against_its_page(tmp_path, wrong):
    path = write(tmp_path / "file", pa.table({"history": FULL}))

    def add(data):
        header, body = read_page_header(pa.py_buffer(data), 0)
        assert header.kind == DICTIONARY_PAGE and header.checksum is None
        checksum = zlib.crc32(data[body : body + header.compressed_size]) ^ wrong
        return with_checksum(data, checksum)

    reader = column_of(path, change=add)
    if wrong:
        with pytest.raises(PageError, match="checksum"):
            reader.read(len(FULL))
    else:
        assert lists_of(*reader.read(len(FULL))) == FULL


def test_a_dictionary_that_is_not_stored_plainly_is_refused(tmp_path):
    """Arrow refuses it as well; its bytes were taken for plain values."""
    path = write(tmp_path / "file", pa.table({"history": FULL}))

    def change(data):
        whole, body = read_page_header(pa.py_buffer(data), 0)
        for place in range(body):  # the one byte that is the encoding
            other = data[:place] + bytes([2 * RLE_DICTIONARY]) + data[place + 1 :]
            with contextlib.suppress(PageError):
                header, _ = read_page_header(pa.py_buffer(other), 0)
                if header == replace(whole, encoding=RLE_DICTIONARY):
                    return other
        raise AssertionError("no byte of the header is the encoding")

    with pytest.raises(PageError, match="a dictionary of encoding 8"):
        column_of(path, change=change).read(len(FULL))


def test_a_value_outside_the_bounds_that_the_file_promises_is_damage(tmp_path):
    path = write(tmp_path / "file", pa.table({"history": FULL}), compression="none")
    six = (6).to_bytes(8, "little")

    def change(data):
        return data.replace(six, (1_000_000).to_bytes(8, "little"), 1)  # in the dictionary

    with pytest.raises(PageError, match="outside the column's 0 to 6"):
        column_of(path, change=change).read(len(FULL))


def test_lists_that_are_not_there_are_missed(tmp_path):
    reader = column_of(write(tmp_path / "file", pa.table({"history": FULL})))
    reader.read(5)
    with pytest.raises(PageError, match="2 lists are missing"):
        reader.read(5)
