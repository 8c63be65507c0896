"""The windows of a GPU: Merlin's own loader reads them, with cudf; TensorFlow joins and pads.

No value goes through the host where nothing is wrong. The plan of the epoch, the checks and the
batches are those of the CPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import merlin.dataloader.tensorflow
import merlin.io
import numpy as np
import tensorflow as tf
from merlin.schema import Schema

from ..foundation.batch_names import OFFSETS, VALUES
from ..foundation.gpu_use import first_line, short_of_memory
from .epoch_plan import EpochPlan
from .row_check import LARGEST_NUMBER
from .row_windows import Columns, RowWindows, Window, cut, place_of
from .stored_rows import ParquetRows, Part, PartitionRows, of_file, open_rows

Range = tuple[int, int, int]
"""A part's place in the epoch's order, and which of its rows."""


def open_windows(
    dataset: merlin.io.Dataset, schema: Schema, *, on_device: bool, **options: Any
) -> RowWindows:
    """Open a dataset, to be read by arrow or, on a device, by Merlin's own loader.

    Args:
        dataset: where the rows are.
        schema: the columns that are read.
        on_device: whether a GPU reads them.
        options: of :class:`~.row_windows.RowWindows`.
    """
    stored = open_rows(dataset, schema)
    if not on_device:
        return RowWindows(stored, schema, **options)
    return DeviceWindows(stored, schema, dataset=dataset, **options)


class DeviceWindows(RowWindows):
    """Reads an epoch window by window, a part (row group) at a time.

    Ids are int64: TensorFlow keeps int32 arguments of a function on the host, and has no kernels
    of a GPU for int32 in Reshape, Concat, Slice, Split and Pad.

    Args:
        stored: where the rows are.
        schema: what the columns hold.
        dataset: whose they are.
        options: of RowWindows.
    """

    def __init__(
        self,
        stored: ParquetRows | PartitionRows,
        schema: Schema,
        *,
        dataset: merlin.io.Dataset,
        **options: Any,
    ) -> None:
        """Have a partition of Merlin's for each part."""
        super().__init__(stored, schema, **options)
        self._schema, self._dataset = schema, dataset
        self._files: dict[str, merlin.io.Dataset] = {}
        self._dtypes = {
            name: tf.int64 if name in self._compact else tf.as_dtype(like.values.dtype)
            for name, like in stored.layout.items()
        }
        self._compact = frozenset()

    def read(self, plan: EpochPlan, first_step: int, rank: int, ranks: int) -> Iterator[Window]:
        """Read a rank's rows of the windows that hold ``first_step`` and those after it."""
        held: dict[int, Columns] = {}
        for window in plan.windows(first_step):
            rows = plan.rank_rows(window, rank, ranks)
            ranges = [found for span in rows.spans for found in _ranges(plan, *span)]
            held = {place: held[place] for place, *_ in ranges if place in held}
            for place, *_ in ranges:
                if place not in held:
                    held[place] = self._read_part(self.stored.parts[int(plan.part_order[place])])
            columns = {name: self._join(name, held, ranges) for name in self.stored.layout}
            if plan.shuffle:
                order = tf.constant(np.concatenate(rows.batches))
                columns = {name: in_order_of(column, order) for name, column in columns.items()}
            # Merlin's memory goes back to cudf with `held`: TensorFlow is to be done with it.
            _wait_for(columns)
            first = window.first_row // plan.global_batch_size
            yield Window(first, window.batches, len(rows.batches[0]), columns)
            del columns

    def _read_part(self, part: Part) -> Columns:
        """Read a part on the device; on the host, which says what is wrong, where that fails."""
        if isinstance(self.stored, ParquetRows):
            self.stored.require_unchanged(part)
        try:
            columns = self._read_by_merlin(part)
            if self._check is None or self._passes(columns):
                return columns
            reason = "some are not as they should be."
        except Exception as error:  # cudf's, cupy's, pandas' and Merlin's own
            if short_of_memory(error) is not None:
                raise
            reason = first_line(str(error))
        columns = self.read_part(part)
        warnings.warn(
            f"{part.where(0)} and those after it were read on the host: {reason}", stacklevel=1
        )
        return {
            name: tuple(map(tf.constant, c)) if isinstance(c, tuple) else tf.constant(c)
            for name, c in columns.items()
        }

    def _read_by_merlin(self, part: Part) -> Columns:
        dataset = self._dataset
        if isinstance(self.stored, ParquetRows):  # Merlin puts several files in its own order
            dataset = self._files.setdefault(
                part.origin, of_file(part.origin, self._schema, self._dataset.cpu)
            )
        loader = merlin.dataloader.tensorflow.Loader(dataset, part.rows, shuffle=False)
        loader.input_schema = self._schema
        loader.indices = loader.array_lib().asarray([part.number])
        ((columns, labels),) = list(loader)
        if labels is not None:
            names = loader.label_names
            columns |= labels if isinstance(labels, dict) else {names[0]: labels}
        found = {}
        for name, like in self.stored.layout.items():
            if name in columns:
                found[name] = columns[name]
            else:
                found[name] = columns[name + VALUES], tf.cast(columns[name + OFFSETS], tf.int64)
            column = found[name]
            rows = len(column[1]) - 1 if isinstance(column, tuple) else len(column)
            is_list = isinstance(column, tuple) or column.shape.rank == 2
            if rows != part.rows or is_list != (like.offsets is not None):
                raise ValueError(f"column {name} has another form than its file.")
        return found

    def _passes(self, columns: Columns) -> bool:
        """Tell with one answer of the device whether nothing is wrong."""
        assert self._check is not None
        right = [tf.constant(True)]
        for name, column in columns.items():
            values = column[0] if isinstance(column, tuple) else column
            is_float = values.dtype.is_floating
            if name in self._check.largest:
                last = tf.cast(self._check.largest[name], values.dtype)
                right.append(tf.reduce_all((values >= 0) & (values <= last)))
                if is_float:
                    right.append(tf.reduce_all(tf.floor(values) == values))
            elif name in self._check.labels and values.dtype != tf.bool:
                right.append(tf.reduce_all((values == 0) | (values == 1)))
            elif is_float:
                right.append(tf.reduce_all(tf.abs(values) <= LARGEST_NUMBER))
        for name in self._check.widths.keys() & columns.keys():
            right.append(tf.reduce_all(_lengths(columns[name]) == self._check.widths[name]))
        for first, *others in self._check.aligned:
            for other in others:
                lengths = _lengths(columns[first]), _lengths(columns[other])
                right.append(tf.reduce_all(lengths[0] == lengths[1]))
        return bool(tf.reduce_all(right))

    def _join(self, name: str, held: dict[int, Columns], ranges: list[Range]) -> Any:
        """Join rows of the parts; lists that have a width become dense."""
        width, dtype = self._widths.get(name), self._dtypes[name]
        is_list = self.stored.layout[name].offsets is not None
        pieces = [cut(held[place][name], start, stop) for place, start, stop in ranges]
        if not is_list:
            return tf.concat([tf.zeros([0], dtype), *(tf.cast(p, dtype) for p in pieces)], 0)
        if width is not None:
            dense = [tf.cast(pad_left(piece, width), dtype) for piece in pieces]
            return tf.concat([tf.zeros([0, width], dtype), *dense], 0)
        values = [tf.cast(tf.reshape(_values(piece), [-1]), dtype) for piece in pieces]
        lengths = [tf.zeros([0], tf.int64), *(_lengths(piece) for piece in pieces)]
        return tf.concat([tf.zeros([0], dtype), *values], 0), _starts(tf.concat(lengths, 0))


def in_order_of(column: Any, order: tf.Tensor) -> Any:
    """Bring the rows of a column into another order, in which some may be left out.

    >>> ragged = tf.constant([5, 6, 7]), tf.constant([0, 1, 1, 3])
    >>> values, offsets = in_order_of(ragged, tf.constant([2, 1, 0]))
    >>> values.numpy().tolist(), offsets.numpy().tolist()
    ([6, 7, 5], [0, 2, 2, 3])
    """
    if not isinstance(column, tuple):
        if not column.dtype.is_integer:
            return tf.gather(column, order)
        # A GPU has no gather of small integers: they take the way of int64.
        return tf.cast(tf.gather(tf.cast(column, tf.int64), order), column.dtype)
    values, offsets = column
    begins, ends = tf.gather(offsets, order), tf.gather(offsets[1:], order)
    starts = _starts(ends - begins)
    places = tf.range(starts[-1])
    row = tf.raw_ops.UpperBound(sorted_inputs=starts[None, 1:], values=places[None])[0]
    return in_order_of(values, places + tf.gather(begins - starts[:-1], row)), starts


def pad_left(column: Any, width: int) -> tf.Tensor:
    """Bring lists to one width, zeros to their left; of longer ones the newest stay.

    >>> pad_left((tf.constant([5, 6, 7]), tf.constant([0, 1, 1, 3])), 2).numpy().tolist()
    [[0, 5], [0, 0], [6, 7]]
    """
    if not isinstance(column, tuple):
        if column.shape[1] == width:
            return column
        column = tf.reshape(column, [-1]), _starts(_lengths(column))
    values, offsets = column
    places = offsets[1:, None] - width + tf.range(width, dtype=offsets.dtype)
    inside = places >= offsets[:-1, None]
    padded = tf.concat([tf.zeros([1], values.dtype), values], 0)  # there may be no value at all
    return in_order_of(padded, tf.where(inside, places + 1, 0))


def _starts(lengths: tf.Tensor) -> tf.Tensor:
    """Say where each list begins, and where the last one ends."""
    return tf.concat([tf.zeros([1], lengths.dtype), tf.cumsum(lengths)], 0)


def _values(column: Any) -> tf.Tensor:
    return column[0] if isinstance(column, tuple) else column


def _lengths(column: Any) -> tf.Tensor:
    if isinstance(column, tuple):
        return column[1][1:] - column[1][:-1]
    return tf.fill([len(column)], tf.constant(column.shape[1], tf.int64))


def _ranges(plan: EpochPlan, start: int, stop: int) -> Iterator[Range]:
    """Cut a range of the epoch's sequence where parts end."""
    while start < stop:
        place = place_of(plan, start)
        begin, end = map(int, plan.part_starts[place : place + 2])
        yield place, start - begin, min(stop, end) - begin
        start = end


def _wait_for(columns: Columns) -> None:
    """Return when all is computed: a device answers in the order in which it was asked."""
    for column in columns.values():
        for tensor in column if isinstance(column, tuple) else (column,):
            tensor[:1].numpy()
