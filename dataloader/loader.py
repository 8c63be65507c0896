"""Merlin's TensorFlow loader, exact over ranks, that can be started at any step."""

from __future__ import annotations

import copy
import os
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any

import merlin.dataloader.tensorflow
import numpy as np
import tensorflow as tf
from merlin.dataloader.loader_base import LoaderBase
from merlin.schema import Schema
from merlin.table import TensorTable

from ..foundation.batch_names import OFFSETS, VALUES
from ..foundation.exceptions import MerlinSimError
from ..foundation.gpu_use import first_line, short_of_memory
from .background import Background
from .behaviour_samples import Batch
from .device_windows import open_windows
from .epoch_plan import EpochPlan, slots
from .hand_over import to_tensor
from .row_windows import RowWindows
from .stored_rows import Array

PREFETCHED_ROWS = 4096
"""Of batches smaller than half of this, more than two are made ahead."""


class Loader(merlin.dataloader.tensorflow.Loader):
    """Feeds a Merlin Dataset to TensorFlow; takes what Merlin's own Loader takes.

    Unlike Merlin's, every row comes exactly once per epoch whatever the files, row groups and
    ranks; every rank takes the same number of steps (in the last one a rank may get fewer rows
    than another, or none); the order depends on ``seed`` and the epoch only, so that the
    batches of all ranks together are those of a single rank. Rows are read and shuffled in threads
    while the model trains: by arrow on a CPU, by Merlin's own loader on a GPU.

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
            GPU as int64, for which TensorFlow has kernels there.
        window_rows: rows that are shuffled together, over all ranks. About two windows are in
            memory at a time, divided by the number of ranks.
        prefetch: batches made ahead (default: two, more where batches are small).
        parallel_calls: threads that decode on a CPU (default: one per core).
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
        self.prefetch = prefetch or max(2, PREFETCHED_ROWS // batch_size)
        self.parallel_calls = parallel_calls
        self.check = check
        self.epoch = 0
        self._first_step = 0
        self._source: Any = None
        self._take_a_place()

    # Where rows are read, and what becomes of them: a loader of users has its own of these

    @property
    def source(self) -> RowWindows:
        """What is read; opened when first needed."""
        if self._source is None:
            self._source = open_windows(
                self.dataset,
                self.input_schema,
                on_device=not self.decodes_in_threads,
                pad_lists=self.pad_lists,
                compact_ids=self.compact_ids,
                check=self.check,
                threads=self.parallel_calls,
            )
        found: RowWindows = self._source
        return found

    @property
    def part_rows(self) -> list[int]:
        """Rows of each part of what is read."""
        return self.source.part_rows

    def read_epoch(self, plan: EpochPlan, first_step: int) -> Iterator[Any]:
        """Give what each step of an epoch is given, from ``first_step`` on."""
        windows = Background(
            self.source.read(plan, first_step, self.global_rank, self.global_size), ahead=1
        )
        try:
            for window in windows:
                for index in range(max(0, first_step - window.first_step), window.batches):
                    yield self._batch_of(window.batch(index))
        finally:
            windows.stop()

    def inputs(self) -> Generator[Any, None, None] | Inputs:
        """Give, for each step of the epoch, what :meth:`make` makes its batch of.

        It has the same shapes in every step: the last batch is filled up with rows of weight 0.
        """
        return self._filled(self.begin())

    def _filled(self, begun: Inputs) -> Generator[Any, None, None]:
        with closing(begun):
            for columns, labels in begun:
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

    # An epoch

    @property
    def global_batch_size(self) -> int:
        """Rows per step over all ranks."""
        return int(self.batch_size * self.global_size)

    def plan(self, epoch: int, seed: int | None = None) -> EpochPlan:
        """Say which rows make up the batches of ``epoch``."""
        return EpochPlan(
            self.part_rows,
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

    @property
    def decodes_in_threads(self) -> bool:
        """Whether threads decode the rows; on a GPU Merlin's loader does."""
        return bool(self.device == "cpu")

    def begin(self) -> Inputs:
        """Begin the epoch."""
        self.num_rows_processed = 0
        _ = self.part_rows  # opened here, once for all readers
        begun = Inputs(self)
        self._begun.add(begun)
        return begun

    def start_at(self, epoch: int, step: int = 0) -> None:
        """Let the next iteration begin with ``step`` of ``epoch``, reading nothing before it."""
        self.stop()
        self.epoch = epoch
        self._first_step = step

    def stop(self) -> None:
        """End the threads; the next iteration begins the epoch again."""
        for begun in list(self._begun):
            begun.close()
        self._take_a_place()

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
        other._take_a_place()
        return other

    def _take_a_place(self) -> None:
        self._own: Inputs | None = None  # what next(loader) goes through
        self._peeked: list[Any] = []
        self._begun: weakref.WeakSet[Inputs] = weakref.WeakSet()

    # What Merlin and Keras call

    def __len__(self) -> int:
        """Count the steps, the same on every rank; like Merlin's, this restarts the epoch."""
        self._own, self._peeked = None, []
        return self.plan(0).steps * int(self._epochs)

    def __iter__(self) -> Iterator[Any]:
        """Go through the epoch; whoever drops the iterator ends its threads."""
        begun = self.begin()
        return (self._batch(given) for given in begun)

    def __next__(self) -> Any:
        """Give the next batch of an iteration that is this loader's own."""
        if self._peeked:
            return self._peeked.pop()
        if self._own is None:
            self._own = self.begin()
        try:
            return self._batch(next(self._own))
        except BaseException:
            self._own = None
            raise

    def peek(self) -> Any:
        """Give the next batch, and give it again next."""
        if not self._peeked:
            rows = self.num_rows_processed
            self._peeked = [next(self)]
            self.num_rows_processed = rows
        return self._peeked[0]

    def on_epoch_end(self) -> None:
        """Count the epoch: Keras asks for exactly as many batches as there are."""
        if self._own is not None:
            self._finish(self._own.next_epoch)

    def _finish(self, epoch: int) -> None:
        self._own, self._peeked = None, []
        self.epoch, self._first_step = epoch, 0

    def _batch(self, given: Any) -> Any:
        batch = self.whole(given)
        self.num_rows_processed += _rows(*batch[:2])
        for change in self._map_fns:
            batch = change(*batch)
        return batch

    def whole(self, given: Any) -> Any:
        """Make a batch for a loop of one's own, without rows that are missing."""
        return given

    @property
    def input_schema(self) -> Schema:
        """The columns that are read."""
        return self._input_schema

    @input_schema.setter
    def input_schema(self, value: Schema) -> None:
        if getattr(self, "_own", None) is not None:
            raise RuntimeError("The schema cannot be changed while batches are being read.")
        LoaderBase.input_schema.fset(self, value)
        self._source = None

    # What the threads of an iteration do, in a reader that nobody else has

    def _read_epochs(self) -> Iterator[Any]:
        for index in range(int(self._epochs)):
            seed = self.seed_fn() if self.seed_fn else self.seed
            plan = self.plan(self.epoch + index, seed)
            try:
                yield from self.read_epoch(plan, self._first_step if index == 0 else 0)
            except (MemoryError, RuntimeError, tf.errors.ResourceExhaustedError) as error:
                short = short_of_memory(error)
                if isinstance(error, tf.errors.ResourceExhaustedError):
                    short = first_line(str(error))
                if short is None:
                    raise
                raise MerlinSimError(
                    f"the feed is out of GPU memory: {short} Smaller `window_rows` "
                    f"({self.window_rows}) need less; TF_MEMORY_ALLOCATION "
                    f"({os.environ.get('TF_MEMORY_ALLOCATION', '0.5')}) is what TensorFlow may "
                    "take of it."
                ) from error

    def _batch_of(self, columns: dict[str, Any]) -> Any:
        """Split off the labels, and apply the transforms, as Merlin does."""
        if self.transforms is not None:  # they take arrays, of numpy or cupy
            table = TensorTable(columns).as_tensor_type(self.array_lib().ndarray)
            return self.convert_batch(self._process_batch(table.to_dict()))
        inputs, labels = self._process_batch(columns)
        if isinstance(labels, dict):
            labels = {name: to_tensor(label) for name, label in labels.items()}
        elif labels is not None:
            labels = to_tensor(labels)
        return {name: to_tensor(column) for name, column in inputs.items()}, labels


class Inputs(Iterator[Any]):
    """What the steps are given, read ahead in threads that end when this is dropped.

    Args:
        loader: read from where it stands; its place moves on when all was read.
    """

    def __init__(self, loader: Loader) -> None:
        """Start to read."""
        self.next_epoch = loader.epoch + int(loader._epochs)
        self._loader = weakref.ref(loader)
        self._made = Background(loader.reader()._read_epochs(), ahead=loader.prefetch)
        self._is_over = False

    def __next__(self) -> Any:
        """Wait for what the next step is given."""
        try:
            return next(self._made)
        except StopIteration:
            loader = self._loader()
            if loader is not None and not self._is_over:
                loader._finish(self.next_epoch)
            self._is_over = True
            raise

    def close(self) -> None:
        """End here; the loader's place stays where it was."""
        self._is_over = True
        self._made.stop()


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

    full = {name: fill(values) for name, values in columns.items()}
    return full, fill(tf.reshape(labels, [-1, 1])), fill(tf.ones([count, 1]))


def _rows(columns: Any, labels: Any) -> int:
    if labels is not None:
        return len(next(iter(labels.values())) if isinstance(labels, dict) else labels)
    for name, value in columns.items():
        if name.endswith(OFFSETS):
            return len(value) - 1
        if not name.endswith(VALUES):
            return len(value)
    return 0
