"""The header of a parquet page, byte by byte."""

from __future__ import annotations

import pyarrow as pa
import pytest

from merlin_sim.feed.pages.page_header import DATA_PAGE, PageError, PageHeader, read_page_header

HEADER = bytes.fromhex("1500 1504 1504 2c 1502 1500 1506 1506 00 00".replace(" ", ""))
"""A data page of two bytes and one value; 15 says: the next field, an integer of 32 bits."""
INTEGERS = [place for place, byte in enumerate(HEADER) if byte == 0x15]


def test_the_fields_of_a_data_page():
    header, end = read_page_header(pa.py_buffer(b"before" + HEADER + b"behind"), 6)
    assert header == PageHeader(DATA_PAGE, 2, 2, 1, 0, None, (3, 3))
    assert end == 6 + len(HEADER)


@pytest.mark.parametrize("place", INTEGERS)
@pytest.mark.parametrize("kind", [1, 2, 3, 4, 6], ids=["yes", "no", "i8", "i16", "i64"])
def test_a_field_of_another_width_is_none(place, kind):
    """Thrift passes over a field that is not of its type, and misses it then."""
    value = b"" if kind < 3 else HEADER[place + 1 : place + 2]
    changed = HEADER[:place] + bytes([0x10 + kind]) + value + HEADER[place + 2 :]
    with pytest.raises(PageError, match="no page header at byte 0"):
        read_page_header(pa.py_buffer(changed), 0)
