"""The header in front of every parquet page, written in Thrift's compact protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY = 0, 2, 3, 8

DEEPEST = 8
"""Structs within structs of a header; more of them is no header."""


class PageError(ValueError):
    """The bytes are not what parquet says they should be."""


@dataclass(frozen=True)
class PageHeader:
    """What the feed needs to know of a page.

    The lengths of the levels are said here by version 2 only; version 1 has them in the page.
    """

    kind: int
    compressed_size: int
    size: int
    values: int
    encoding: int
    checksum: int | None
    level_encodings: tuple[int, ...] = ()
    definition_bytes: int = 0
    repetition_bytes: int = 0
    is_compressed: bool = True


def read_page_header(data: pa.Buffer, position: int) -> tuple[PageHeader, int]:
    """Read the header at ``position``; returns it and the position of the page behind it.

    Raises:
        PageError: where there is no header.
    """
    reader = _CompactReader(memoryview(data).cast("B"), position)
    try:
        header = _header(reader.struct())
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise PageError(f"there is no page header at byte {position} of the column") from error
    sizes = (header.compressed_size, header.size, header.values)
    if min(*sizes, header.definition_bytes, header.repetition_bytes) < 0:
        raise PageError("a page header gives a negative size")
    return header, reader.position


def _header(fields: dict[int, Any]) -> PageHeader:
    kind, size, compressed_size = _integers(fields, 1, 2, 3)
    checksum = _integers(fields, 4)[0] if 4 in fields else None
    if kind == DATA_PAGE:
        values, encoding, *levels = _integers(fields[5], 1, 2, 3, 4)
        return PageHeader(kind, compressed_size, size, values, encoding, checksum, tuple(levels))
    if kind == DICTIONARY_PAGE:
        values, encoding = _integers(fields[7], 1, 2)
        return PageHeader(kind, compressed_size, size, values, encoding, checksum)
    if kind == DATA_PAGE_V2:
        values, encoding, definitions, repetitions = _integers(fields[8], 1, 4, 5, 6)
        return PageHeader(
            kind,
            compressed_size,
            size,
            values,
            encoding,
            checksum,
            definition_bytes=definitions,
            repetition_bytes=repetitions,
            is_compressed=fields[8].get(7) is not False,
        )
    return PageHeader(kind, compressed_size, size, 0, PLAIN, checksum)


def _integers(fields: dict[int, Any], *names: int) -> list[int]:
    values = [fields[name] for name in names]
    if not all(type(value) is int for value in values):
        raise TypeError(values)
    return values


class _CompactReader:
    """Thrift's compact protocol, as far as page headers use it: structs become dicts by field.

    All that is needed of a header are integers of 32 bits. One of another width is not that field,
    as for Thrift itself.
    """

    def __init__(self, data: memoryview, position: int) -> None:
        self._data = data
        self.position = position

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > DEEPEST:
            raise IndexError(self.position)
        fields: dict[int, Any] = {}
        field = 0
        while True:
            byte = self._byte()
            if byte == 0:
                return fields
            step, kind = byte >> 4, byte & 15
            field = field + step if step else self._signed()
            fields[field] = self._value(kind, depth)

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):  # a boolean is its own type
            return kind == 1
        if kind == 3:
            return self._bytes(1)
        if kind == 5:
            return self._signed()
        if kind in (4, 6):
            self._varint()
            return None
        if kind == 7:
            return self._bytes(8)
        if kind == 8:
            return self._bytes(self._varint())
        if kind in (9, 10):
            return self._list(depth)
        if kind == 12:
            return self.struct(depth + 1)
        raise IndexError(self.position)

    def _list(self, depth: int) -> list[Any]:
        byte = self._byte()
        size = byte >> 4 if byte >> 4 != 15 else self._varint()
        if size > len(self._data):
            raise IndexError(self.position)
        return [self._value(byte & 15, depth) for _ in range(size)]

    def _byte(self) -> int:
        value = self._data[self.position]
        self.position += 1
        return int(value)

    def _bytes(self, count: int) -> bytes:
        start, self.position = self.position, self.position + count
        if self.position > len(self._data):
            raise IndexError(self.position)
        return bytes(self._data[start : self.position])

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise IndexError(self.position)

    def _signed(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
