"""Merlin's TensorFlow loader with a feed that is exact over ranks and fast without a GPU."""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any

import merlin.dataloader.tensorflow
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from merlin.dataloader.loader_base import LoaderBase
from merlin.schema import Schema

from ..foundation.batch_names import OFFSETS, VALUES
from ..foundation.exceptions import MerlinSimError
from ..foundation.gpu_use import short_of_memory
from .background import Background
from .batches.filled_window import FilledWindow
from .batches.memory_blocks import MemoryBlocks
from .behaviour_samples import Batch
from .epoch_plan import EpochPlan, Rows, slots
from .gpu_rows import DeviceWindow
from .hand_over import can_be_handed_over, device_tensor, to_tensor
from .rows.gathered_rows import GatheredRows, Values
from .rows.row_source import ParquetRows, RowSource, open_rows
from .window_reader import WindowReader

Array = npt.NDArray[Any]
GATHER_ROWS = 4096
"""Batches smaller than this are gathered several at a time."""


BATCHES_KEPT = 4
"""So many batches of a GPU are kept after they were handed over: TensorFlow lets go of one as soon
as the step that reads it is queued, and cupy would write the next batch into its memory."""


class Loader(merlin.dataloader.tensorflow.Loader):
    """Feeds a Merlin Dataset to TensorFlow; takes what Merlin's own Loader takes.

    Unlike Merlin's, every row comes exactly once per epoch whatever the files, row groups and
    ranks; every rank takes the same number of steps (in the last one a rank may get fewer rows
    than another, or none); the order depends on ``seed`` and the epoch only, so that the
    batches of all ranks together are those of a single rank; and on CPU rows stay in arrow and
    numpy from parquet to tensors, read and shuffled in threads while the model trains.

    Args:
        dataset: any :class:`merlin.io.Dataset`; only the columns of its schema are read.
        batch_size: rows per step on this rank; a global batch is ``batch_size * global_size``.
        shuffle: a new order in each epoch.
        seed_fn: gives the seed anew at the start of each epoch; must agree over ranks.
        parts_per_chunk: multiplies ``window_rows``.
        global_size: number of ranks.
        global_rank: this rank.
        drop_last: leave out the rows that do not fill a global batch.
        transforms: Merlin operators applied to every batch.
        device: as in Merlin's Loader.
        seed: the seed where ``seed_fn`` is not given.
        pad_lists: ragged lists come as dense [batch, longest] tensors, padded with zeros on the
            left, the longest length being the schema's.
        compact_ids: ids whose table has fewer than 2^31 rows come as int32, however stored; on a
            GPU as int64.
        window_rows: rows that are shuffled together, over all ranks. About two windows are in
            memory at a time, divided by the number of ranks.
        prefetch: batches made ahead (default: two, more where batches are small).
        parallel_calls: threads that decode and fill batches on CPU (default: one per core).
        check: refuse ids beyond their table, labels that are not 0 or 1, missing values.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        shuffle: bool = False,
        seed_fn: Callable[[], int] | None = None,
        parts_per_chunk: int = 1,
        global_size: int | None = None,
        global_rank: int | None = None,
        drop_last: bool = False,
        transforms: Any = None,
        device: Any = None,
        *,
        seed: int = 0,
        pad_lists: bool = False,
        compact_ids: bool = False,
        window_rows: int = 65536,
        prefetch: int | None = None,
        parallel_calls: int | None = None,
        check: bool = True,
    ) -> None:
        """Check the arguments; files are opened with the first batch."""
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            seed_fn,
            parts_per_chunk,
            global_size,
            global_rank,
            drop_last,
            transforms,
            device,
        )
        if batch_size < 1:
            raise MerlinSimError(f"`batch_size` should be positive. Received: {batch_size}")
        if not 0 <= self.global_rank < self.global_size:
            raise MerlinSimError(
                f"`global_rank` should be 0 to {self.global_size - 1}. Received: {self.global_rank}"
            )
        self.seed = seed
        self.pad_lists = pad_lists
        self.compact_ids = compact_ids
        self.window_rows = window_rows * parts_per_chunk
        self.prefetch = prefetch or max(2, GATHER_ROWS // batch_size)
        self.parallel_calls = parallel_calls
        self.check = check
        self.epoch = 0
        self._first_step = 0
        self._source: RowSource | None = None
        self._running: Background[Any] | None = None
        self._peeked: list[Any] = []
        self._blocks = MemoryBlocks()
        columns = len(self.input_schema.column_names)
        self._handed: deque[Any] = deque(maxlen=2 * columns * BATCHES_KEPT)

    @property
    def global_batch_size(self) -> int:
        """Rows per step over all ranks."""
        return int(self.batch_size * self.global_size)

    @property
    def source(self) -> RowSource:
        """What the rows are read from; opened when first needed."""
        if self._source is None:
            self._source = open_rows(self.dataset, self.input_schema)
        return self._source

    def plan(self, epoch: int, seed: int | None = None) -> EpochPlan:
        """Say which rows make up the batches of ``epoch``."""
        return EpochPlan(
            self.source.part_rows,
            self.global_batch_size,
            bool(self.shuffle),
            self.seed if seed is None else seed,
            epoch,
            self.window_rows,
            bool(self.drop_last),
        )

    @property
    def samples(self) -> int:
        """Samples of an epoch: here each row is one."""
        return self.plan(0).rows

    def local_rows(self, step: int) -> int:
        """Rows of this rank in ``step``: the last step may have fewer, or none."""
        low, high = slots(self.plan(0).batch_rows(step), self.global_rank, self.global_size)
        return high - low

    def start_at(self, epoch: int, step: int = 0) -> None:
        """Let the next iteration begin with ``step`` of ``epoch``, reading nothing before it."""
        self.stop()
        self.epoch = epoch
        self._first_step = step

    # What a compiled step is given

    def inputs(self) -> Generator[Any, None, None]:
        """Give, for each step of the epoch, what :meth:`make` makes its batch of.

        It has the same shapes in every step: the last batch is filled up with rows of weight 0.
        """
        for columns, labels in self:
            yield filled(columns, labels, self.batch_size)

    def make(self, given: Any) -> Batch:
        """Make the batch of a step, in TensorFlow ops: columns, labels and weights."""
        batch: Batch = given
        return batch

    def places(self, step: int, given: Any) -> tuple[Array, Array | None]:
        """Where the samples of this rank's batch stand in the stored order, without shuffling.

        Args:
            step: Which step of the epoch.
            given: What :meth:`inputs` gave for it.

        Returns:
            [samples] rows, and of users the positions in their histories.
        """
        low, high = slots(self.plan(0).batch_rows(step), self.global_rank, self.global_size)
        return step * self.global_batch_size + np.arange(low, high), None

    # What Merlin and Keras call

    def __len__(self) -> int:
        """Count the steps, the same on every rank; like Merlin's, this restarts the epoch."""
        self.stop()
        return self.plan(0).steps * int(self._epochs)

    def __iter__(self) -> Loader:
        """Start the epoch in the background."""
        self.stop()
        self.num_rows_processed = 0
        self._start()
        return self

    def _get_next_batch(self) -> Any:
        if self._running is None:
            self._start()
        if self._peeked:
            batch = self._peeked.pop()
        else:
            assert self._running is not None
            try:
                batch = next(self._running)
            except StopIteration:
                self._finish_epoch()
                raise
            except BaseException:
                self.stop()
                raise
        self.num_rows_processed += _rows(batch)
        return batch

    def _peek_next_batch(self) -> Any:
        if not self._peeked:
            rows = self.num_rows_processed
            self._peeked = [self._get_next_batch()]
            self.num_rows_processed = rows
        return self._peeked[0]

    def stop(self) -> None:
        """End the threads; the next iteration begins the epoch again."""
        running, self._running = self._running, None
        self._peeked = []
        if running is not None:
            running.stop()

    def on_epoch_end(self) -> None:
        """Count the epoch: Keras asks for exactly as many batches as there are."""
        if self._running is not None:
            self._finish_epoch()

    def _finish_epoch(self) -> None:
        self.stop()
        self.epoch += int(self._epochs)
        self._first_step = 0

    def epochs(self, epochs: int = 1) -> Loader:
        """Give a loader that runs through ``epochs`` epochs in one iteration."""
        if epochs == self._epochs:
            return self
        longer = self.reader()
        longer._epochs = epochs
        return longer

    def reader(self) -> Loader:
        """Give a loader of the same rows, at the same epoch, that has a place of its own."""
        other = copy.copy(self)
        other._running = None
        other._peeked = []
        other._blocks = MemoryBlocks()
        other._handed = deque(maxlen=self._handed.maxlen)
        return other

    @property
    def _working(self) -> bool:
        return self._running is not None

    @property
    def input_schema(self) -> Schema:
        """The columns that are read."""
        return self._input_schema

    @input_schema.setter
    def input_schema(self, value: Schema) -> None:
        if getattr(self, "_running", None) is not None:
            raise RuntimeError("The schema cannot be changed while batches are being read.")
        LoaderBase.input_schema.fset(self, value)
        self._source = None

    # How batches are made

    def _start(self) -> None:
        batches = self._read_epochs(self.epoch, self._first_step)
        self._running = Background(batches, ahead=self.prefetch)

    def _read_epochs(self, epoch: int, step: int) -> Iterator[Any]:
        for index in range(int(self._epochs)):
            seed = self.seed_fn() if self.seed_fn else self.seed
            plan = self.plan(epoch + index, seed)
            try:
                yield from self._read_epoch(plan, step if index == 0 else 0)
            except (MemoryError, RuntimeError) as error:
                short = short_of_memory(error)
                if short is None:
                    raise
                raise MerlinSimError(
                    f"the feed is out of GPU memory: {short} Smaller `window_rows` "
                    f"({self.window_rows}) need less; TF_MEMORY_ALLOCATION "
                    f"({os.environ.get('TF_MEMORY_ALLOCATION', '0.5')}) is what TensorFlow may "
                    "take of it."
                ) from error

    def _read_epoch(self, plan: EpochPlan, first_step: int) -> Iterator[Any]:
        with contextlib.closing(self._read_windows(plan, first_step)) as windows:
            for first, window, batches in windows:
                yield from self._make_batches(window, batches, max(0, first_step - first))

    def _read_windows(self, plan: EpochPlan, first_step: int) -> Generator[Any, None, None]:
        """Read window by window: its first step, its rows, and its batches' row numbers."""
        frames, source = self._frame_library(), self.source
        reader = WindowReader(
            self.input_schema,
            self.global_rank,
            self.global_size,
            self.pad_lists,
            self.compact_ids,
            self.check,
            self.parallel_calls,
            self._blocks,
        )
        if frames is not None and isinstance(source, ParquetRows):
            yield from reader.read_on_device(source, plan, first_step, frames)
        else:
            yield from reader.read(source, plan, first_step)

    @property
    def decodes_in_threads(self) -> bool:
        """Whether threads make the batches; on a GPU cudf does."""
        return self._frame_library() is None

    def _frame_library(self) -> Any:
        """Return cudf on a GPU, where rows stay on the device until they are tensors; else None."""
        if self.device == "cpu":
            return None
        from merlin.core.compat import cudf

        return cudf

    def _make_batches(
        self,
        gathered: FilledWindow | GatheredRows | DeviceWindow,
        batches: list[Rows],
        skip: int,
    ) -> Iterator[Any]:
        if isinstance(gathered, FilledWindow):
            for index in range(skip, len(batches)):
                yield self._process_batch(gathered.batch(index))
            return
        batches = batches[skip:]
        if isinstance(gathered, DeviceWindow):
            yield from (self._process_batch(gathered.batch(rows)) for rows in batches)
            return
        together = max(1, GATHER_ROWS // self.batch_size)
        for index in range(0, len(batches), together):
            group = batches[index : index + together]
            values = gathered.take(np.concatenate(group))
            bounds = np.concatenate([[0], np.cumsum([len(rows) for rows in group])])
            for start, stop in itertools.pairwise(bounds.tolist()):
                cut = {name: _cut(value, start, stop) for name, value in values.items()}
                yield self._process_batch(cut)

    def convert_batch(self, batch: Any) -> Any:
        """Hand the memory of numpy or cupy to TensorFlow."""
        inputs, targets = batch
        if not can_be_handed_over(inputs, targets):
            return super().convert_batch(batch)
        columns = inputs.to_dict() if hasattr(inputs, "to_dict") else inputs
        tensors = {name: self._hand_over(value) for name, value in columns.items()}
        if isinstance(targets, dict):
            return tensors, {name: self._hand_over(value) for name, value in targets.items()}
        return tensors, None if targets is None else self._hand_over(targets)

    def _hand_over(self, value: Any) -> tf.Tensor:
        array = getattr(value, "values", value)
        if isinstance(array, np.ndarray):
            return to_tensor(array)
        self._handed.append(array)
        return device_tensor(array)


def filled(columns: dict[str, tf.Tensor], labels: tf.Tensor, rows: int) -> Batch:
    """Fill a batch of rows up with zeros; labels and weights become [rows, 1].

    >>> _, labels, weights = filled({"a": tf.constant([5])}, tf.constant([1.0]), 2)
    >>> labels.numpy().tolist(), weights.numpy().tolist()
    ([[1.0], [0.0]], [[1.0], [0.0]])
    """
    count = int(labels.shape[0])

    def fill(values: tf.Tensor) -> tf.Tensor:
        lacking = [[0, rows - count], *[[0, 0]] * (values.shape.rank - 1)]
        return tf.pad(values, lacking) if count < rows else values

    weights = tf.ones([count, 1])
    full = {name: fill(values) for name, values in columns.items()}
    return full, fill(tf.reshape(labels, [-1, 1])), fill(weights)


def _cut(value: Values, start: int, stop: int) -> Values:
    if isinstance(value, tuple):
        values, offsets = value
        return values[offsets[start] : offsets[stop]], offsets[start : stop + 1] - offsets[start]
    return value[start:stop]


def _rows(batch: Any) -> int:
    inputs, targets, *_ = batch
    if targets is not None:
        return len(next(iter(targets.values())) if isinstance(targets, dict) else targets)
    for name, value in inputs.items():
        if name.endswith(OFFSETS):
            return len(value) - 1
        if not name.endswith(VALUES):
            return len(value)
    return 0
