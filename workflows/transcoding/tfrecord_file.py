"""TFRecord files in the published layouts: one sample a record, or a batch of samples.

A record is a tf.train.Example of int64 lists (floats for float features). One sample a record:
single features have one value, histories as many as they are long. A batch of B samples a
record ("prebatched"; the file ``remainder.tfrecord`` has the shorter last one): single features
have B values, histories B times their full length, padded, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from ...foundation.exceptions import MerlinSimError
from ...schemas.specs.feature_spec import Feature
from ..engine.backend import arrow_lists

RECORDS_AT_ONCE = 4096
BYTES_AT_ONCE = 2**25
"""Records are as large as whoever made them liked: a prebatched one may hold 16,384 samples."""

DAMAGE = (tf.errors.OpError, UnicodeDecodeError)
"""What parsing a damaged record raises."""


def read_tfrecord(
    path: Path, types: pa.Schema, features: Mapping[str, Feature]
) -> Iterator[pa.Table]:
    """Read a file as tables of samples.

    Raises:
        MerlinSimError: With the record that is damaged, lacks a feature, or does not add up.
    """
    wanted = {field.name: tf.io.RaggedFeature(_tf_type(field.type)) for field in types}
    before = 0
    batches = iter(tf.data.TFRecordDataset(str(path)).batch(_records_at_once(path)))
    while True:
        try:
            serialized = next(batches, None)
        except tf.errors.OpError as error:
            raise MerlinSimError(
                f"{path}, record {_count_whole(path) + 1}: damaged or cut short ({error.message})."
            ) from error
        if serialized is None:
            return
        try:
            parsed = tf.io.parse_example(serialized, wanted)
        except DAMAGE as error:
            record = before + _first_unreadable(serialized, wanted) + 1
            raise MerlinSimError(
                f"{path}, record {record}: not a tf.train.Example with the features "
                f"{', '.join(types.names)} ({_told(error)})."
            ) from error
        columns = {name: _flat(ragged) for name, ragged in parsed.items()}
        _require_histories(path, before, serialized, columns, types)
        yield _samples(path, before, columns, types, features)
        before += len(serialized)


def _require_histories(
    path: Path,
    before: int,
    serialized: Any,
    columns: Mapping[str, tuple[npt.NDArray[Any], npt.NDArray[np.int64]]],
    types: pa.Schema,
) -> None:
    """Refuse a history that is not there: TensorFlow gives an empty one."""
    for field in types:
        if not pa.types.is_list(field.type):
            continue
        name = field.name.encode()
        entry = b"\n" + _as_varint(len(name)) + name  # how a map of features begins one
        for place in np.flatnonzero(np.diff(columns[field.name][1]) == 0):
            if entry not in serialized[int(place)].numpy():
                raise MerlinSimError(
                    f"{path}, record {before + int(place) + 1}: expected the feature {field.name}, "
                    "found none."
                )


def _as_varint(number: int) -> bytes:
    digits = [number >> 7 * place & 0x7F for place in range((max(1, number.bit_length()) + 6) // 7)]
    return bytes([*(digit | 0x80 for digit in digits[:-1]), digits[-1]])


def _records_at_once(path: Path) -> int:
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")  # of the first record
    return max(1, min(RECORDS_AT_ONCE, BYTES_AT_ONCE // max(1, size)))


def _tf_type(kind: pa.DataType) -> Any:
    value = kind.value_type if pa.types.is_list(kind) else kind
    return tf.float32 if pa.types.is_floating(value) else tf.int64


def _flat(ragged: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    return ragged.values.numpy(), ragged.row_splits.numpy().astype(np.int64)


def _samples(
    path: Path,
    before: int,
    columns: Mapping[str, tuple[npt.NDArray[Any], npt.NDArray[np.int64]]],
    types: pa.Schema,
    features: Mapping[str, Feature],
) -> pa.Table:
    """Turn records into samples: how many a record has, its single features say."""
    singles = [field.name for field in types if not pa.types.is_list(field.type)]
    lists = [field.name for field in types if pa.types.is_list(field.type)]
    records = len(next(iter(columns.values()))[1]) - 1
    counts = np.diff(columns[singles[0]][1]) if singles else np.ones(records, np.int64)
    for name in singles:
        _check(path, before, name, np.diff(columns[name][1]), counts, "as many values as samples")
    _check(path, before, types.names[0], counts, np.maximum(counts, 1), "at least one sample")
    table = {name: pa.array(columns[name][0]) for name in singles}
    for name in lists:
        values, ends = columns[name]
        lengths = np.diff(ends)
        longest = (features[name].dimensions or (0,))[0]
        full = np.where(counts > 1, counts * longest, lengths)
        _check(path, before, name, lengths, full, f"{longest} values a sample")
        # Of a record with one sample the list is that sample's, of whatever length.
        each = np.repeat(np.where(counts > 1, longest, lengths), counts)
        table[name] = arrow_lists(values, np.concatenate([[0], np.cumsum(each)]))
    return pa.table({name: table[name] for name in types.names})


def _check(
    path: Path,
    before: int,
    name: str,
    found: npt.NDArray[np.int64],
    expected: npt.NDArray[np.int64],
    what: str,
) -> None:
    wrong = np.flatnonzero(found != expected)
    if len(wrong):
        record = int(wrong[0])
        raise MerlinSimError(
            f"{path}, record {before + record + 1}: {name}: expected {what} "
            f"({expected[record]}), found {found[record]}."
        )


def _first_unreadable(serialized: Any, wanted: Mapping[str, Any]) -> int:
    for place in range(len(serialized)):
        try:
            tf.io.parse_example(serialized[place : place + 1], wanted)
        except DAMAGE:
            return place
    return 0


def _told(error: Exception) -> str:
    """What TensorFlow says; it cannot say it where a damaged name would stand in it."""
    return getattr(error, "message", "a name that is not UTF-8")


def _count_whole(path: Path) -> int:
    count = 0
    try:
        for _ in tf.data.TFRecordDataset(str(path)):
            count += 1
    except tf.errors.OpError:
        pass
    return count
