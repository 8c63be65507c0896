"""TFRecord files in the published layouts: one sample a record, or a batch of samples.

A record is a tf.train.Example of int64 lists (floats for float features). One sample a record:
single features have one value, histories as many as they are long. A batch of B samples a
record ("prebatched"; the file ``remainder.tfrecord`` has the shorter last one): single features
have B values, histories B times their full length, padded, one after the other.

Both are read. What is written has histories of full length, padded with 0 on the left: the
published readers take no other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from ...dataloader.arrow_columns import decode, pad_left
from ...foundation.exceptions import MerlinSimError
from ...schemas.channels import LABEL
from ...schemas.dtypes import canonical_dtype
from ...schemas.feature_spec import Chunk, Feature, FeatureSpec
from ..frames import arrow_lists

REMAINDER = "remainder.tfrecord"
"""The published name of the file with the samples that fill no prebatched record."""
RECORDS_AT_ONCE = 4096
BYTES_AT_ONCE = 2**25
"""Records may have any size: a prebatched one may hold 16,384 samples."""
DAMAGE = (tf.errors.OpError, UnicodeDecodeError)
"""What parsing a damaged record raises."""

Array = npt.NDArray[Any]
Lists = Mapping[str, tuple[Array, npt.NDArray[np.int64]]]
"""Feature -> its values of all records, and [records + 1] where each record's begin."""


def read_tfrecord(
    path: Path, types: pa.Schema, features: Mapping[str, Feature]
) -> Iterator[pa.Table]:
    """Read a file as tables of samples; refuse a record that is damaged or does not add up."""
    specs = {field.name: tf.io.RaggedFeature(_tf_type(field.type)) for field in types}
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
            parsed = tf.io.parse_example(serialized, specs)
        except DAMAGE as error:
            record = before + (_first_unreadable(serialized, specs) or 0) + 1
            # TensorFlow has no message where a damaged name would stand in it.
            reason = getattr(error, "message", "a name that is not UTF-8")
            raise MerlinSimError(
                f"{path}, record {record}: not a tf.train.Example with the features "
                f"{', '.join(types.names)} ({reason})."
            ) from error
        lists = {
            name: (ragged.values.numpy(), ragged.row_splits.numpy().astype(np.int64))
            for name, ragged in parsed.items()
        }
        _require_histories(path, before, serialized, lists, types)
        yield _samples(path, before, lists, types, features)
        before += len(serialized)


def _records_at_once(path: Path) -> int:
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")  # of the first record
    return max(1, min(RECORDS_AT_ONCE, BYTES_AT_ONCE // max(1, size)))


def _count_whole(path: Path) -> int:
    count = 0
    with suppress(tf.errors.OpError):
        for _ in tf.data.TFRecordDataset(str(path)):
            count += 1
    return count


def _tf_type(kind: pa.DataType) -> Any:
    value = kind.value_type if pa.types.is_list(kind) else kind
    return tf.float32 if pa.types.is_floating(value) else tf.int64


def _first_unreadable(serialized: Any, specs: Mapping[str, Any]) -> int | None:
    """Return the number of the first record that cannot be parsed; None where all can be."""
    with suppress(*DAMAGE):
        tf.io.parse_example(serialized, specs)
        return None
    for record in range(len(serialized)):
        try:
            tf.io.parse_example(serialized[record : record + 1], specs)
        except DAMAGE:
            return record
    return None


def _require_histories(
    path: Path, before: int, serialized: Any, lists: Lists, types: pa.Schema
) -> None:
    """Refuse a history that is not there: as a ragged feature, TensorFlow gives an empty one."""
    for field in types:
        empty = np.flatnonzero(np.diff(lists[field.name][1]) == 0)
        if pa.types.is_list(field.type) and len(empty):
            required = {field.name: tf.io.FixedLenFeature([0], _tf_type(field.type))}
            lacking = _first_unreadable(tf.gather(serialized, empty), required)
            if lacking is not None:
                raise MerlinSimError(
                    f"{path}, record {before + empty[lacking] + 1}: expected the feature "
                    f"{field.name}, found none."
                )


def _samples(
    path: Path, before: int, lists: Lists, types: pa.Schema, features: Mapping[str, Feature]
) -> pa.Table:
    """Turn records into samples: how many a record has, its single features say."""

    def check(name: str, found: Array, expected: Array, what: str) -> None:
        wrong = np.flatnonzero(found != expected)
        if len(wrong):
            record = int(wrong[0])
            raise MerlinSimError(
                f"{path}, record {before + record + 1}: {name}: expected {what} "
                f"({expected[record]}), found {found[record]}."
            )

    lengths = {name: np.diff(splits) for name, (_, splits) in lists.items()}
    singles = [field.name for field in types if not pa.types.is_list(field.type)]
    counts = lengths[singles[0]] if singles else np.ones_like(lengths[types.names[0]])
    for name in singles:
        check(name, lengths[name], counts, "as many values as samples")
    check(types.names[0], counts, np.maximum(counts, 1), "at least one sample")
    table = {}
    for name in types.names:
        values, found = lists[name][0], lengths[name]
        if name in singles:
            table[name] = pa.array(values)
            continue
        longest = (features[name].dimensions or (0,))[0]
        full = np.where(counts > 1, counts * longest, found)
        check(name, found, full, f"{longest} values a sample")
        # Of a record with one sample the list is that sample's, of whatever length.
        each = np.repeat(np.where(counts > 1, longest, found), counts)
        table[name] = arrow_lists(values, np.concatenate([[0], np.cumsum(each)]))
    return pa.table(table)


def tfrecord_spec(spec: FeatureSpec, history_length: int | None = None) -> FeatureSpec:
    """Return what a dataset is when it is written so: labels are truth values, floats have 32 bits.

    Histories are padded to ``history_length``, where it is given; longer ones are refused.
    """
    features = {}
    for name, feature in spec.feature_spec.items():
        if name in spec.channel_spec.get(LABEL, ()):
            feature = replace(feature, dtype="bool")
        elif str(canonical_dtype(feature.dtype)).startswith("float"):
            feature = replace(feature, dtype="float32")
        if history_length is not None and feature.dimensions is not None:
            if feature.dimensions[0] > history_length:
                raise MerlinSimError(
                    f"`max_seq_len` should be at least {feature.dimensions[0]}, the length of "
                    f"{name}. Received: {history_length}"
                )
            feature = replace(feature, dimensions=(history_length,))
        features[name] = feature
    return replace(spec, feature_spec=features)


def write_tfrecord(
    tables: Iterable[pa.Table], directory: Path, mapping: str, spec: FeatureSpec, rows: int,
    parts: int, samples: int,
) -> Chunk:  # fmt: skip
    """Write a stream of tables as the files of one mapping: parts of nearly equal size.

    The spec is that of :func:`tfrecord_spec`. There are fewer parts where there are fewer records;
    samples that fill no record go to :data:`REMAINDER`.
    """
    size, more = divmod(rows // samples, parts)
    sizes = [size + (part < more) for part in range(parts)]
    files = {f"part_{part}.tfrecord": size for part, size in enumerate(sizes) if size}
    if rows % samples:
        files[REMAINDER] = 1
    (directory / mapping).mkdir()
    records = _encoded(tables, spec.feature_spec, samples)
    for name, size in (files or {"part_0.tfrecord": 0}).items():
        with tf.io.TFRecordWriter(str(directory / mapping / name)) as file:
            for record in itertools.islice(records, size):
                file.write(record)
    names = tuple(f"{mapping}/{name}" for name in files or ["part_0.tfrecord"])
    return Chunk("tfrecord", tuple(spec.feature_spec), names)


def _encoded(
    tables: Iterable[pa.Table], features: Mapping[str, Feature], samples: int
) -> Iterator[bytes]:
    """Give records of so many samples each; the last one may have fewer."""

    def columns(table: pa.Table, records: int) -> dict[str, Array]:
        whole = {name: _padded(feature, table[name]) for name, feature in features.items()}
        return {name: values.reshape(records, -1) for name, values in whole.items()}

    waiting: list[pa.Table] = []
    for table in tables:
        together = pa.concat_tables([*waiting, table])
        whole = together.num_rows // samples
        if whole:
            yield from encode_examples(columns(together.slice(0, whole * samples), whole))
        waiting = [together.slice(whole * samples)]
    for rest in waiting:
        if rest.num_rows:
            yield from encode_examples(columns(rest, 1))


def _padded(feature: Feature, stored: pa.ChunkedArray) -> Array:
    """Return a column's values: [rows], or [rows, longest] of a history."""
    kind = np.float32 if feature.dtype == "float32" else np.int64
    column = decode(stored)
    if feature.dimensions is None or column.offsets is None:
        return column.values.astype(kind)
    padded = np.empty((column.rows, feature.dimensions[0]), kind)
    pad_left(column.values, np.diff(column.offsets), padded)
    return padded


def encode_examples(columns: Mapping[str, Array]) -> Iterator[bytes]:
    """Give one serialized tf.train.Example for each record: [records, values], int64 or float32.

    >>> [len(record) for record in encode_examples({"a": np.array([[1], [300]])})]
    [14, 15]
    """
    for row in range(len(next(iter(columns.values())))):
        example = tf.train.Example()
        for name, values in columns.items():
            feature = example.features.feature[name]
            kind = feature.float_list if values.dtype == np.float32 else feature.int64_list
            kind.value.extend(values[row].tolist())  # Python's numbers are taken much faster
        yield example.SerializeToString()
