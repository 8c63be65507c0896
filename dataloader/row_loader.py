"""Rows as they are stored: they are on the device, a step is told which of them it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from ..foundation.exceptions import MerlinSimError
from .behaviour_samples import Batch
from .device_rows import DeviceRows
from .epoch_plan import EpochPlan
from .loader import Array, Block, Loader
from .stored_rows import StoredRows


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
        """Check the arguments; files are opened with the first batch."""
        super().__init__(dataset, batch_size, **options)
        if len(self.label_names) > 1:
            raise MerlinSimError(
                "The schema should have one column tagged as target, or none. "
                f"Received: {', '.join(self.label_names)}."
            )
        if not hasattr(getattr(dataset.engine, "_dataset", None), "files"):
            raise MerlinSimError(
                "The dataset should be of parquet files. Received: one of "
                f"{type(dataset.engine).__name__}. Merlin's own loader reads it."
            )
        self._parallel_calls = parallel_calls
        self._enough = 0

    @cached_property
    def rows(self) -> StoredRows:
        """Where rows come from; files are opened when first needed."""
        kind = StoredRows if self.device == "cpu" else DeviceRows
        return kind(
            list(self.dataset.engine._dataset.files), self.input_schema, self._parallel_calls
        )

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
        """Make a batch: columns, labels and weights.

        Args:
            data: [stored rows] The columns, those of lists [stored rows, width].
            entries: [rows] Which rows; -1 for none.
            seeds: Of no use here.
        """
        counts = entries >= 0
        places = tf.maximum(entries, 0)

        def taken(values: tf.Tensor) -> tf.Tensor:
            rows = tf.gather(values, places)
            there = counts if rows.shape.rank == 1 else counts[:, None]
            return tf.where(there, rows, tf.zeros_like(rows))

        columns = {name: taken(values) for name, values in data.items()}
        weights = tf.cast(counts, tf.float32)[:, None]
        labels = [columns.pop(name)[:, None] for name in self.labels]
        return columns, labels[0] if labels else tf.zeros_like(weights), weights
