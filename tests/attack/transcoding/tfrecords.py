"""TFRecord files in plain Python: records, their checksums, and what a tf.train.Example holds."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable
from typing import Any

POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected
Features = dict[str, tuple[str, list[Any]]]
"""Feature -> the kind of its list (``int64``, ``float``, ``bytes``, or nothing), and its values."""


class BadRecord(ValueError):
    """A record that cannot be read; its number, from 1, stands in the message."""


@functools.cache
def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


def checksum(content: bytes) -> int:
    """The masked CRC-32C that stands beside a record's length and content."""
    crc, table = 0xFFFFFFFF, _table()
    for byte in content:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(records: Iterable[bytes]) -> bytes:
    """Records as a file holds them."""
    parts = []
    for record in records:
        length = struct.pack("<Q", len(record))
        parts += [length, struct.pack("<I", checksum(length))]
        parts += [record, struct.pack("<I", checksum(record))]
    return b"".join(parts)


def unframed(content: bytes) -> list[bytes]:
    """The records of a file.

    Raises:
        BadRecord: Where one is cut short, or is not what its checksum says.
    """
    records: list[bytes] = []
    while content:
        number = len(records) + 1
        if len(content) < 12 or struct.unpack("<I", content[8:12])[0] != checksum(content[:8]):
            raise BadRecord(f"record {number}: its length")
        end = 12 + struct.unpack("<Q", content[:8])[0]
        if len(content) < end + 4:
            raise BadRecord(f"record {number}: cut short")
        record = content[12:end]
        if struct.unpack("<I", content[end : end + 4])[0] != checksum(record):
            raise BadRecord(f"record {number}: its checksum")
        records.append(record)
        content = content[end + 4 :]
    return records


def encoded(features: Features) -> bytes:
    """A tf.train.Example of these features."""
    import tensorflow as tf

    example = tf.train.Example()
    for name, (kind, values) in features.items():
        feature = example.features.feature[name]
        if kind:
            getattr(feature, f"{kind}_list").value.extend(values)
    return bytes(example.SerializeToString())


def decoded(record: bytes) -> Features:
    """The features of a tf.train.Example.

    Raises:
        google.protobuf.message.DecodeError: Where it is none.
    """
    import tensorflow as tf

    found: Features = {}
    for name, feature in tf.train.Example.FromString(record).features.feature.items():
        kind = feature.WhichOneof("kind")
        values = list(getattr(feature, kind).value) if kind else []
        found[name] = ((kind or "").removesuffix("_list"), values)
    return found
