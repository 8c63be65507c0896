"""TFRecord files as the published converter writes them, for those who read that form.

A mapping is a directory of parts of nearly equal size; prebatched, what does not fill a record
stands in ``remainder.tfrecord``, which comes last. Histories have their full length, padded with
0 on the left: the published readers take no other.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

from ...foundation.exceptions import MerlinSimError
from ...schemas.channels import LABEL
from ...schemas.dtypes import canonical_dtype
from ...schemas.specs.feature_spec import Chunk, Feature, FeatureSpec
from .example_messages import encode_examples
from .tfrecord_form import REMAINDER, TFRECORD, TfrecordForm

Array = np.ndarray[Any, Any]


def tfrecord_spec(spec: FeatureSpec, history_length: int | None = None) -> FeatureSpec:
    """Say what a dataset is when it is written so: labels are truth values, floats have 32 bits.

    Args:
        spec: The dataset.
        history_length: To which length histories are padded; None: as long as they are.

    Raises:
        MerlinSimError: Where histories are longer.
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


@dataclass
class TfrecordWriter:
    """Writes a stream of tables as the files of one mapping."""

    directory: Path
    """The dataset directory."""

    mapping: str
    """`train`, `test`, ..."""

    spec: FeatureSpec
    """As :func:`tfrecord_spec` gives it."""

    form: TfrecordForm
    """How many parts, and how many samples a record."""

    expected: int
    """How many rows will come."""

    rows: int = 0
    _files: list[str] = field(default_factory=list)
    _waiting: list[pa.Table] = field(default_factory=list)
    _records: int = 0
    _part_ends: list[int] = field(default_factory=list)
    _file: Any = None

    def __post_init__(self) -> None:
        """Make the directory, and deal the records out to its parts."""
        self.size = self.form.prebatch_size(self.mapping)
        records = self.expected // max(1, self.size)
        parts = self.form.parts(self.mapping)
        self._part_ends = [
            (place + 1) * (records // parts) + min(place + 1, records % parts)
            for place in range(parts)
        ]
        (self.directory / self.mapping).mkdir()

    def write(self, table: pa.Table) -> None:
        """Take some rows."""
        self.rows += table.num_rows
        if not self.size:
            for record in encode_examples(self._columns(table)):
                self._write_record(record)
            return
        self._waiting.append(table)
        while sum(part.num_rows for part in self._waiting) >= self.size:
            waiting = pa.concat_tables(self._waiting)
            self._write_record(self._joined(waiting.slice(0, self.size)))
            self._waiting = [waiting.slice(self.size)]

    def close(self, schema: pa.Schema) -> None:
        """Write what fills no record; an empty file if there never was a row."""
        rest = pa.concat_tables([*self._waiting, schema.empty_table()])
        self._close_file()
        if rest.num_rows:
            self._open_file(REMAINDER)
            self._file.write(self._joined(rest))
        elif not self._files:
            self._open_file("part_0.tfrecord")
        self._close_file()

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The mapping, as the spec says it."""
        order = tuple(self.spec.feature_spec)
        return (Chunk(TFRECORD, order, tuple(self._files)),)

    def _joined(self, table: pa.Table) -> bytes:
        """Put all rows into one record."""
        columns = {name: values.reshape(1, -1) for name, values in self._columns(table).items()}
        return next(encode_examples(columns))

    def _columns(self, table: pa.Table) -> dict[str, Array]:
        """Give each feature's values: [rows, 1], or [rows, longest] of a history."""
        return {
            name: self._values(name, feature, table[name].combine_chunks())
            for name, feature in self.spec.feature_spec.items()
        }

    def _values(self, name: str, feature: Feature, column: Any) -> Array:
        kind = np.float32 if feature.dtype == "float32" else np.int64
        if feature.dimensions is None:
            values = np.asarray(column)
            return values.astype(kind).reshape(-1, 1)
        padded = np.zeros((len(column), feature.dimensions[0]), kind)
        lengths = np.asarray(column.value_lengths())
        padded[np.arange(padded.shape[1]) >= padded.shape[1] - lengths[:, None]] = np.asarray(
            column.flatten()
        )
        return padded

    def _write_record(self, record: bytes) -> None:
        part = len(self._files) - 1
        if self._file is None or self._records == self._part_ends[part]:
            self._close_file()
            self._open_file(f"part_{len(self._files)}.tfrecord")
        self._file.write(record)
        self._records += 1

    def _open_file(self, name: str) -> None:
        self._files.append(f"{self.mapping}/{name}")
        self._file = tf.io.TFRecordWriter(str(self.directory / self._files[-1]))

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None
