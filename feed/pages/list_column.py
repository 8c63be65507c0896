"""One list column of one row group, decoded from its pages a number of rows at a time.

Arrow turns the two levels of every value into offsets one value at a time, which is most of what
reading a history costs. Here the levels stay runs, a full history being one of them, and values
go from the page to the result in one step, as the shortest integers that can hold them.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from . import page_header
from .list_form import ListForm, value_bounds
from .page_header import PageError, PageHeader, read_page_header
from .runs import find_lists, find_zeros, is_constant, look_up, start_runs

Array = npt.NDArray[Any]

INTEGERS = tuple(np.iinfo(kind) for kind in ("int16", "int32", "int64"))


class MissingValue(Exception):
    """There is no list, or one holds an element without a value: plain arrays cannot show it."""


@dataclass
class _Page:
    """A data page whose lists are known and whose values are read as they are asked for."""

    data: Array
    elements: int
    """Those that were not read yet."""
    position: int
    """Of the next plain value."""
    runs: Array | None = None
    """The state of the indices' reader, if they point into the dictionary."""
    width: int = 0


class ListColumnReader:
    """Reads a column of a row group from its first row to its last.

    Args:
        data: the bytes of the column in the row group.
        form: how it is stored.
        chunk: its metadata.
    """

    def __init__(self, data: pa.Buffer, form: ListForm, chunk: pq.ColumnChunkMetaData) -> None:
        """Begin before the first page."""
        self._data = data
        self._form = form
        self._codec = None
        if chunk.compression != "UNCOMPRESSED":
            self._codec = pa.Codec(chunk.compression.lower())
        self._position = 0
        self._values_left = int(chunk.num_values)
        self._size = int(chunk.total_uncompressed_size)
        self._dictionary: Array | None = None
        self._bounds = value_bounds(chunk)
        self._kind = self._result_kind()
        self._pages: deque[_Page] = deque()
        self._starts = np.empty(0, np.int64)  # of the lists not read yet, as element numbers
        self._found = 0  # elements of all pages so far
        self._taken = 0  # elements handed out

    @property
    def bounds(self) -> tuple[Any, Any] | None:
        """The smallest and the largest value, with which every integer that is read is compared."""
        return self._bounds if self._form.stored.kind == "i" else None

    def read(self, rows: int) -> tuple[Array, Array]:
        """Decode the next ``rows`` lists: their values and their offsets.

        Raises:
            PageError: where the bytes are damaged.
            MissingValue: where a list is missing, or an element has no value.
        """
        while len(self._starts) <= rows and self._values_left:
            self._add_page()
        if len(self._starts) < rows:
            raise PageError(f"{rows - len(self._starts)} lists are missing")
        starts, self._starts = self._starts[:rows], self._starts[rows:]
        stop = self._starts[0] if len(self._starts) else self._found
        offsets = np.append(starts, stop) - self._taken
        values = _empty(int(offsets[-1]), self._kind)
        filled = 0
        while filled < len(values):
            page = self._pages[0]
            count = min(page.elements, len(values) - filled)
            self._fill(page, values[filled : filled + count])
            page.elements -= count
            filled += count
            if not page.elements:
                self._pages.popleft()
        self._taken += len(values)
        return values, offsets

    def finish(self) -> None:
        """Refuse a column that has more lists than were read.

        Raises:
            PageError: where there are more.
        """
        if len(self._starts) or self._values_left:
            raise PageError("there are more lists than were announced")

    def _result_kind(self) -> np.dtype[Any]:
        """Return the shortest of :data:`INTEGERS` that can hold what the column promises."""
        if self._form.kind.kind == "i" and self._bounds:
            low, high = self._bounds
            for integers in INTEGERS:
                if integers.min <= low and high <= integers.max:
                    return integers.dtype
        return self._form.kind

    def _add_page(self) -> None:
        header, start = read_page_header(self._data, self._position)
        if header.compressed_size > len(self._data) - start or header.size > self._size:
            raise PageError("a page is longer than its column")
        body = self._data.slice(start, header.compressed_size)
        self._position = start + header.compressed_size
        if header.checksum is not None and zlib.crc32(body) != header.checksum & 0xFFFFFFFF:
            raise PageError("a page's checksum is wrong")
        if header.kind == page_header.DICTIONARY_PAGE:
            if header.encoding not in (page_header.PLAIN, page_header.PLAIN_DICTIONARY):
                raise PageError(f"a dictionary of encoding {header.encoding}")
            plain = self._plain(self._expand(body, header.size), 0, header.values)
            self._dictionary = np.array(plain)  # aligned, which its page may not be
        elif header.kind in (page_header.DATA_PAGE, page_header.DATA_PAGE_V2):
            self._add_lists(header, body)

    def _expand(self, body: pa.Buffer, size: int, is_compressed: bool = True) -> Array:
        if self._codec is not None and is_compressed:
            body = self._codec.decompress(body, size)
        if len(body) != size:
            raise PageError(f"a page of {size} bytes has {len(body)}")
        return _as_array(body)

    def _plain(self, data: Array, position: int, count: int) -> Array:
        """View ``count`` values and check them against the bounds that the column promises."""
        stop = position + count * self._form.stored.itemsize
        if stop > len(data):
            raise PageError(f"a page of {count} values ends early")
        values: Array = data[position:stop].view(self._form.stored)
        if self._bounds and count and values.dtype.kind == "i":
            low, high = self._bounds
            if values.min() < low or values.max() > high:
                raise PageError(f"a page has values outside the column's {low} to {high}")
        return values.astype(self._kind, copy=False)

    def _add_lists(self, header: PageHeader, body: pa.Buffer) -> None:
        if header.values > self._values_left:
            raise PageError("the pages have more values than the column")
        if any(encoding != page_header.RLE for encoding in header.level_encodings):
            raise PageError(f"levels of encoding {header.level_encodings}")
        self._values_left -= header.values
        if header.kind == page_header.DATA_PAGE:
            data = self._expand(body, header.size)
            repetitions, position = _prefixed(data, 0)
            definitions, position = _prefixed(data, position)
            page = self._page(data, position, header)
            levels = data
        else:
            stop = header.repetition_bytes + header.definition_bytes
            if stop > min(len(body), header.size):
                raise PageError("a page is shorter than its levels")
            levels = _as_array(body)[:stop]
            repetitions = (0, header.repetition_bytes)
            definitions = (header.repetition_bytes, stop)
            data = self._expand(body.slice(stop), header.size - stop, header.is_compressed)
            page = self._page(data, 0, header)
        starts, page.elements = self._lists(levels, repetitions, definitions, header.values)
        self._starts = np.concatenate([self._starts, starts + self._found])
        self._found += page.elements
        if page.elements:
            self._pages.append(page)

    def _lists(
        self, levels: Array, repetitions: tuple[int, int], definitions: tuple[int, int], count: int
    ) -> tuple[Array, int]:
        """Find where the lists of a page begin, and how many elements it has."""
        form = self._form
        width = form.present_level.bit_length()
        starts = np.empty(count, np.int64)
        if is_constant(levels, start_runs(*definitions), width, count, form.present_level):
            lists, elements = find_zeros(levels, start_runs(*repetitions), count, starts), count
        else:
            repeated, defined = np.empty(count, np.uint8), np.empty(count, np.uint8)
            known = np.arange(form.present_level + 1, dtype=np.uint8)
            whole = look_up(levels, start_runs(*repetitions), 1, known[:2], repeated)
            if not whole or not look_up(levels, start_runs(*definitions), width, known, defined):
                raise PageError("a page has fewer levels than values")
            lists, elements, missing = find_lists(
                repeated, defined, (form.list_level, form.element_level, form.present_level), starts
            )
            if missing:
                raise MissingValue
        if lists < 0:
            raise PageError("a page has fewer levels than values")
        if not self._found and elements and not (lists and starts[0] == 0):
            raise PageError("the first list does not begin with the column")
        return starts[:lists], elements

    def _page(self, data: Array, position: int, header: PageHeader) -> _Page:
        if header.encoding == page_header.PLAIN:
            return _Page(data, 0, position)
        if header.encoding not in (page_header.PLAIN_DICTIONARY, page_header.RLE_DICTIONARY):
            raise PageError(f"a page of encoding {header.encoding}")
        if position >= len(data):
            return _Page(data, 0, position)  # of empty lists only
        width = int(data[position])
        if width > 32:
            raise PageError(f"indices of {width} bits")
        return _Page(data, 0, position, start_runs(position + 1, len(data)), width)

    def _fill(self, page: _Page, result: Array) -> None:
        if page.runs is None:
            result[:] = self._plain(page.data, page.position, len(result))
            page.position += len(result) * self._form.stored.itemsize
            return
        if self._dictionary is None or not len(self._dictionary):
            raise PageError("a page points into a dictionary that is not there")
        if page.width == 0:
            result[:] = self._dictionary[0]
        elif not look_up(page.data, page.runs, page.width, self._dictionary, result):
            raise PageError("a page points outside its dictionary, or ends early")


def _empty(count: int, kind: np.dtype[Any]) -> Array:
    """Make an array in arrow's memory, which is kept for the next one when it is freed."""
    memory = pa.allocate_buffer(max(1, count) * kind.itemsize)
    array: Array = np.frombuffer(memory, kind, count)
    return array


def _as_array(data: pa.Buffer) -> Array:
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False  # of one type for numba, whoever owns the memory
    return array


def _prefixed(data: Array, position: int) -> tuple[tuple[int, int], int]:
    """Return where levels that are preceded by their length lie, and what follows them."""
    start = position + 4
    stop = start + int.from_bytes(data[position:start].tobytes(), "little")
    if stop > len(data):
        raise PageError("a page is shorter than its levels")
    return (start, stop), stop
