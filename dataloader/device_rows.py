"""Rows of parquet files on a GPU: Merlin's own loader reads them, with cudf; TensorFlow pads."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import merlin.dataloader.tensorflow
import merlin.io
import tensorflow as tf
from merlin.schema import Schema

from ..foundation.batch_names import OFFSETS, VALUES
from ..foundation.gpu_use import first_line, short_of_memory
from .row_check import LARGEST_NUMBER
from .stored_rows import Part, StoredRows, of_file

Columns = dict[str, Any]
"""By column a tensor, or of ragged lists their values and offsets."""


class DeviceRows(StoredRows):
    """Rows that no value of goes through the host, where nothing is wrong.

    Ids are int64: TensorFlow keeps int32 arguments of a function on the host, and has no kernels
    of a GPU for int32 in Reshape, Concat, Slice, Split and Pad.

    Args:
        paths: the files, in their order.
        schema: the columns.
        threads: of what is read on the host.
    """

    def __init__(self, paths: Sequence[str], schema: Schema, threads: int | None = None) -> None:
        """Have a Merlin dataset for each file: several it would put in an order of its own."""
        super().__init__(paths, schema, threads)
        self._datasets: dict[str, merlin.io.Dataset] = {}
        self._types = {
            name: tf.int64 if dtype.kind in "iu" else tf.as_dtype(dtype)
            for name, dtype in self.dtypes.items()
        }

    @property
    def bytes_of_row(self) -> int:
        """What a row takes on the device."""
        return sum(kind.size * self.widths.get(name, 1) for name, kind in self._types.items())

    def read(self, numbers: Sequence[int], rows: int) -> dict[str, tf.Tensor]:
        """Read row groups, in this order; columns are filled up with zeros to ``rows``."""
        parts = [self._read_part(number) for number in numbers]
        lacking = rows - sum(self.parts[number].rows for number in numbers)
        joined = {}
        for name, kind in self._types.items():
            width = (self.widths[name],) if self.layout[name].offsets is not None else ()
            pieces = [part.pop(name) for part in parts]
            joined[name] = tf.concat([*pieces, tf.zeros([lacking, *width], kind)], 0)
            joined[name][:1].numpy()  # Merlin's memory goes back to cudf once this was computed
        return joined

    def _read_part(self, number: int) -> dict[str, tf.Tensor]:
        """Read a row group on the device; on the host, which says what is wrong, where that fails.

        Raises:
            DataError: naming the file and row of what cannot be used.
        """
        part = self.parts[number]
        self.require_unchanged(part)
        try:
            columns = self._read_by_merlin(part)
            reason = None if self._passes(columns) else "some are not as they should be."
        except Exception as error:  # cudf's, cupy's, pandas' and Merlin's own
            if short_of_memory(error) is not None:
                raise
            reason = first_line(str(error))
        if reason is None:
            return {name: self._dense(name, column) for name, column in columns.items()}
        on_host = super().read([number], part.rows)
        warnings.warn(
            f"{part.where(0)} and those after it were read on the host: {reason}", stacklevel=1
        )
        return {name: tf.cast(column, self._types[name]) for name, column in on_host.items()}

    def _read_by_merlin(self, part: Part) -> Columns:
        if part.origin not in self._datasets:
            self._datasets[part.origin] = of_file(part.origin, self._schema)
        dataset = self._datasets[part.origin]
        loader = merlin.dataloader.tensorflow.Loader(dataset, part.rows, shuffle=False)
        loader.input_schema = self._schema
        loader.indices = loader.array_lib().asarray([part.number])
        ((columns, labels),) = list(loader)
        if labels is not None:
            names = loader.label_names
            columns |= labels if isinstance(labels, dict) else {names[0]: labels}
        found = {}
        for name, like in self.layout.items():
            if name in columns:
                column = columns[name]
                rows, is_list = len(column), column.shape.rank == 2
            else:
                offsets = tf.cast(columns[name + OFFSETS], tf.int64)
                column = tf.reshape(columns[name + VALUES], [-1]), offsets
                rows, is_list = len(offsets) - 1, True
            if rows != part.rows or is_list != (like.offsets is not None):
                raise ValueError(f"column {name} has another form than its file.")
            found[name] = column
        return found

    def _passes(self, columns: Columns) -> bool:
        """Tell with one answer of the device whether nothing is wrong."""
        check, right = self.check, [tf.constant(True)]
        for name, column in columns.items():
            values = column[0] if isinstance(column, tuple) else column
            is_float = values.dtype.is_floating
            if name in check.largest:
                last = tf.cast(check.largest[name], values.dtype)
                right.append(tf.reduce_all((values >= 0) & (values <= last)))
                if is_float:
                    right.append(tf.reduce_all(tf.floor(values) == values))
            elif name in check.labels and values.dtype != tf.bool:
                right.append(tf.reduce_all((values == 0) | (values == 1)))
            elif is_float:
                right.append(tf.reduce_all(tf.abs(values) <= LARGEST_NUMBER))
        for name in check.widths.keys() & columns.keys():
            right.append(tf.reduce_all(_lengths(columns[name]) == check.widths[name]))
        for first, *others in check.aligned:
            for other in others:
                lengths = _lengths(columns[first]), _lengths(columns[other])
                right.append(tf.reduce_all(lengths[0] == lengths[1]))
        return bool(tf.reduce_all(right))

    def _dense(self, name: str, column: Any) -> tf.Tensor:
        """Bring a column to its type, lists to one width."""
        kind = self._types[name]
        if self.layout[name].offsets is None:
            return tf.cast(column, kind)
        if not isinstance(column, tuple):
            starts = tf.range(len(column) + 1, dtype=tf.int64) * column.shape[1]
            column = tf.reshape(column, [-1]), starts
        return pad_left(tf.cast(column[0], kind), column[1], self.widths[name])


def pad_left(values: tf.Tensor, offsets: tf.Tensor, width: int) -> tf.Tensor:
    """Bring lists to one width, zeros to their left; of longer ones the newest stay.

    >>> pad_left(tf.constant([5, 6, 7]), tf.constant([0, 1, 1, 3]), 2).numpy().tolist()
    [[0, 5], [0, 0], [6, 7]]
    """
    places = offsets[1:, None] - width + tf.range(width, dtype=offsets.dtype)
    inside = places >= offsets[:-1, None]
    padded = tf.concat([tf.zeros([1], values.dtype), values], 0)  # there may be no value at all
    return tf.gather(padded, tf.where(inside, places + 1, 0))


def _lengths(column: Any) -> tf.Tensor:
    if isinstance(column, tuple):
        return column[1][1:] - column[1][:-1]
    return tf.fill([len(column)], tf.constant(column.shape[1], tf.int64))
