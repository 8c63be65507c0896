"""Rows as they are stored: they are on the device, a step takes some of them by number."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import merlin.dataloader.tensorflow
import merlin.io
import numpy as np
import tensorflow as tf
from merlin.io.parquet import ParquetDatasetEngine
from merlin.schema import Schema

from ..foundation.batch_names import OFFSETS, VALUES
from ..foundation.exceptions import MerlinSimError
from ..foundation.gpus import first_line, short_of_memory
from ..schemas.dtypes import LARGEST_NUMBER
from .behaviour_samples import Batch
from .epoch_plan import EpochPlan
from .loader import Array, Block, Loader
from .stored_rows import Part, StoredRows, batches_of, of_file


class RowLoader(Loader):
    """A :class:`~.loader.Loader` of the rows of parquet files.

    Lists come as dense [batch, longest] tensors, padded with zeros on the left, the longest length
    being the schema's. Ids whose table has fewer than 2^31 rows come as int32, however stored; on a
    GPU as int64, for which TensorFlow has kernels there. Arrow reads them on a CPU, Merlin's own
    loader on a GPU.

    Args:
        dataset: a :class:`merlin.io.Dataset` of parquet files; the columns of its schema are read.
        batch_size: rows per step on this rank.
        parallel_calls: threads that decode on a CPU (default: one per core).
        options: of Loader.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        parallel_calls: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(dataset, batch_size, **options)
        if len(self.label_names) > 1:
            raise MerlinSimError(
                "The schema should have one column tagged as target, or none. "
                f"Received: {', '.join(self.label_names)}."
            )
        if not isinstance(dataset.engine, ParquetDatasetEngine):
            raise MerlinSimError(
                "The dataset should be of parquet files. Received: one of "
                f"{type(dataset.engine).__name__}. Merlin's own loader reads it."
            )
        _ = self.files  # as they are now
        self._parallel_calls = parallel_calls
        self._enough = 0

    @cached_property
    def rows(self) -> StoredRows:
        """Where rows come from; files are opened when first needed."""
        kind = StoredRows if self.device == "cpu" else DeviceRows
        return kind(list(self.files), self.input_schema, self._parallel_calls)

    @property
    def decodes_in_threads(self) -> bool:
        """Whether threads of ours decode: on a GPU Merlin's loader reads."""
        return bool(self.device == "cpu")

    @property
    def part_rows(self) -> list[int]:
        """Rows of each row group."""
        return [part.rows for part in self.rows.parts]

    @property
    def groups(self) -> range:
        """A part is a row group."""
        return range(len(self.rows.parts))

    @property
    def key(self) -> Any:
        """The same of all loaders of the same columns."""
        return self.rows.key

    def megabytes(self, groups: Iterable[int]) -> float:
        """What row groups take on the device."""
        return sum(self.rows.parts[n].rows for n in groups) * self.rows.bytes_of_row / 1e6

    def read(self, groups: Sequence[int], are_all: bool) -> Block:
        """Read row groups, in this order."""
        starts = np.cumsum([0, *(self.rows.parts[number].rows for number in groups)])
        if not are_all and self._enough < starts[-1]:  # seldom another size than before
            self._enough = 1 << (int(starts[-1]) - 1).bit_length()
        return Block(starts, self.rows.read(groups, int(starts[-1]) if are_all else self._enough))

    def part_entries(self, plan: EpochPlan, block: Block, part: int, number: int) -> Array:
        """The rows of a row group, which the epoch's windows shuffle."""
        entries: Array = np.arange(*block.on_host[number : number + 2])
        return entries

    @cached_property
    def make_samples(self) -> TakeRows:
        """Takes the rows of a step."""
        return TakeRows(tuple(self.label_names))


@dataclass(frozen=True)
class TakeRows:
    """Takes stored rows, in TensorFlow ops with static shapes."""

    labels: tuple[str, ...]
    """The column of labels, or none."""

    def __call__(self, data: dict[str, tf.Tensor], entries: tf.Tensor, seeds: Any) -> Batch:
        """Make a batch of stored rows, [rows], -1 for none: columns, labels and weights."""
        counts = entries >= 0
        indices = tf.maximum(entries, 0)

        def taken(values: tf.Tensor) -> tf.Tensor:
            rows = tf.gather(values, indices)
            there = counts if rows.shape.rank == 1 else counts[:, None]
            return tf.where(there, rows, tf.zeros_like(rows))

        columns = {name: taken(values) for name, values in data.items()}
        weights = tf.cast(counts, tf.float32)[:, None]
        labels = [columns.pop(name)[:, None] for name in self.labels]
        return columns, labels[0] if labels else tf.zeros_like(weights), weights


Columns = dict[str, Any]
"""By column a tensor, or of ragged lists their values and offsets."""


class DeviceRows(StoredRows):
    """Rows that no value of goes through the host, where nothing is wrong."""

    def __init__(self, paths: Sequence[str], schema: Schema, threads: int | None = None) -> None:
        """Have a Merlin dataset for each file: several it would put in an order of its own."""
        super().__init__(paths, schema, threads)
        self._datasets: dict[str, merlin.io.Dataset] = {}

    @property
    def is_for_gpu(self) -> bool:
        """Always: Merlin reads them there."""
        return True

    def read(self, numbers: Sequence[int], rows: int) -> dict[str, tf.Tensor]:
        """Read row groups, in this order; columns are filled up with zeros to ``rows``."""
        parts = [self._read_part(number) for number in numbers]
        lacking = rows - sum(self.parts[number].rows for number in numbers)
        joined = {}
        for name, kind in self.dtypes.items():
            width = (self.widths[name],) if self.layout[name].offsets is not None else ()
            pieces = [part.pop(name) for part in parts]
            joined[name] = tf.concat([*pieces, tf.zeros([lacking, *width], kind)], 0)
            joined[name][:1].numpy()  # Merlin's memory goes back to cudf once this was computed
        return joined

    def _read_part(self, number: int) -> dict[str, tf.Tensor]:
        """Read a row group on the device; if that fails on the host, which says what is wrong."""
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
        return on_host

    def _read_by_merlin(self, part: Part) -> Columns:
        if part.origin not in self._datasets:
            self._datasets[part.origin] = of_file(part.origin, self._schema)
        dataset = self._datasets[part.origin]
        at_once = part.rows + 1  # should there be more rows, this is seen
        loader = merlin.dataloader.tensorflow.Loader(dataset, at_once, shuffle=False)
        loader.input_schema = self._schema
        loader.indices = loader.array_lib().asarray([part.number])
        ((columns, labels),) = batches_of(loader, part.rows)
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
        """Return whether nothing is wrong, by one answer of the device."""
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
        kind = self.dtypes[name]
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
    indices = offsets[1:, None] - width + tf.range(width, dtype=offsets.dtype)
    inside = indices >= offsets[:-1, None]
    padded = tf.concat([tf.zeros([1], values.dtype), values], 0)  # there may be no value at all
    return tf.gather(padded, tf.where(inside, indices + 1, 0))


def _lengths(column: Any) -> tf.Tensor:
    if isinstance(column, tuple):
        return column[1][1:] - column[1][:-1]
    return tf.fill([len(column)], tf.constant(column.shape[1], tf.int64))
