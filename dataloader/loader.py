"""Merlin's TensorFlow loader, exact over ranks, that can be started at any step.

What it reads stays on the device; a step takes the rows that are its batch.
"""

from __future__ import annotations

import copy
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple

import merlin.dataloader.tensorflow
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import tensorflow as tf
from merlin.dataloader.loader_base import LoaderBase
from merlin.schema import Schema

from ..foundation.exceptions import MerlinSimError
from ..foundation.gpus import first_line, short_of_memory
from ..foundation.hashing import tell_users_apart
from ..schemas.dataset import DatasetDirectory
from .background import Background
from .behaviour_samples import Batch
from .epoch_plan import EpochPlan, planned_steps, slots, steps_entries
from .stored_rows import files_of

Array = npt.NDArray[Any]
STEPS_AHEAD = 2
ROWS_AHEAD = 1 << 21
"""Rows of all ranks whose order is worked out at a time."""
DATA_MEMORY_MB = 4096
"""Memory for what stays on the device, unless it is set."""
ONCE_MB = 256
"""Memory for data that is read once, or in part: block by block."""


class Step(NamedTuple):
    """Input of a step: which rows are its batch, and what they are made of."""

    data: Any
    order: tf.Tensor
    """[rows, steps] The entries of several steps."""
    number: tf.Tensor
    """Which of these steps it is; int64, as TensorFlow keeps int32 on the host."""
    seeds: Any = ()
    """Of random draws, where there are any."""

    @property
    def entries(self) -> tf.Tensor:
        """[rows] Which rows they are; -1 for one that is missing."""
        return tf.gather(self.order, self.number, axis=1)


@lru_cache(maxsize=1024, typed=True)
def scalar_on_device(value: int | bool) -> tf.Tensor:
    """Return a scalar, int64 or bool, that is copied to the device once.

    A copy to a GPU waits for all that was asked of it before: a new scalar in each step would let
    no step be started before the one before it has ended.
    """
    with tf.init_scope():
        return tf.constant(value, tf.bool if isinstance(value, bool) else tf.int64)


@dataclass(frozen=True, eq=False)
class Block:
    """Row groups that were read together."""

    on_host: Any
    """What the order of rows is made of."""
    tensors: Any
    """What batches are made of."""


_resident: weakref.WeakValueDictionary[Any, Block] = weakref.WeakValueDictionary()
"""What loaders of this process keep on the device: the loaders of train and test may share it."""
_in_graph: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()
"""What makes batches for loops of one's own, traced once for all loaders of such batches."""


class Loader(merlin.dataloader.tensorflow.Loader):
    """Feeds TensorFlow batches of rows that it keeps on the device.

    Unlike Merlin's, every row comes exactly once per epoch whatever the files, row groups and
    ranks; every rank takes the same number of steps (in the last one a rank may get fewer rows
    than another, or none); the order depends on ``seed`` and the epoch only, so that the
    batches of all ranks together are those of a single rank.

    What fits ``data_memory_mb`` is read once and stays on the device of each rank. More comes block
    by block, the next one read while this one trains. The batches are the same.

    Args:
        dataset: names the files.
        batch_size: rows per step on this rank; a global batch is ``batch_size * global_size``.
        shuffle: a new order in each epoch.
        seed: of the orders; must agree over ranks.
        global_size: number of ranks.
        global_rank: this rank.
        drop_last: leave out the rows that do not fill a global batch.
        window_rows: rows that are shuffled together, over all ranks.
        data_memory_mb: memory on the device, in MB.
        contiguous: read one part of the stored rows, which is this rank's alone, in place of
            a share of each global batch: rows that stand together stay on one rank.
    """

    tells_users_apart: ClassVar[bool] = False
    """Whether users without an id are known, too."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        global_size: int | None = None,
        global_rank: int | None = None,
        drop_last: bool = False,
        window_rows: int = 65536,
        data_memory_mb: int = DATA_MEMORY_MB,
        contiguous: bool = False,
    ) -> None:
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            global_size=global_size,
            global_rank=global_rank,
            drop_last=drop_last,
        )
        if batch_size < 1:
            raise MerlinSimError(f"`batch_size` should be positive. Received: {batch_size}")
        if not 0 <= self.global_rank < self.global_size:
            raise MerlinSimError(
                f"`global_rank` should be 0 to {self.global_size - 1}. Received: {self.global_rank}"
            )
        if contiguous and (shuffle or drop_last):
            raise MerlinSimError(
                "`contiguous` should be left out with `shuffle` or `drop_last`: it is of rows "
                f"as stored. Received: `shuffle` = {shuffle}, `drop_last` = {drop_last}."
            )
        self.seed = seed
        self.window_rows = window_rows
        self.data_memory_mb = data_memory_mb
        self.contiguous = contiguous
        self.epoch = 0
        self._first_step = 0
        self._begin_anew()

    directory: DatasetDirectory | None = None
    """The dataset directory that it reads."""

    # What is read, and what becomes of it: rows and users have their own of these

    @property
    def part_rows(self) -> Sequence[int]:
        """Rows of each part."""
        raise NotImplementedError

    @property
    def groups(self) -> Sequence[int]:
        """Of each part, the number of the row group that holds it."""
        raise NotImplementedError

    @property
    def all_groups(self) -> Sequence[int]:
        """The numbers of all row groups, those without a row for this loader too."""
        return self.groups

    def megabytes(self, groups: Iterable[int]) -> float:
        """What row groups take on the device."""
        raise NotImplementedError

    def read(self, groups: Sequence[int], are_all: bool) -> Block:
        """Read row groups, in this order."""
        raise NotImplementedError

    @property
    def key(self) -> Any:
        """What distinguishes what is read from what another loader reads."""
        raise NotImplementedError

    def part_entries(self, plan: EpochPlan, block: Block, part: int, number: int) -> Array:
        """The entries of a part in an epoch's order."""
        raise NotImplementedError

    def seeds(self, plan: EpochPlan) -> Any:
        """What an epoch's random draws begin with."""
        return ()

    @property
    def make_samples(self) -> Callable[[Any, tf.Tensor, Any], Batch]:
        """Makes a batch of data, entries and seeds; does not refer to the loader."""
        raise NotImplementedError

    def make(self, step: Step) -> Batch:
        """Make the batch of a step, in TensorFlow ops: columns, labels and weights.

        It has the same shapes in every step: the last batch is filled up with rows of weight 0.
        """
        return self.make_samples(step.data, step.entries, step.seeds)

    def whole(self, given: Step) -> Any:
        """Make a batch for a loop of one's own, without rows that are missing."""
        columns, labels, _ = self.present(given)
        return columns, labels[:, 0] if self.label_names else None

    def present(self, given: Step) -> Batch:
        """Make a batch without rows that are missing."""
        batch: Batch
        batch, rows = self._make_eagerly(given)
        if int(rows) < self.batch_size:
            batch = tf.nest.map_structure(lambda values: values[: int(rows)], batch)
        return batch

    @cached_property
    def _make_eagerly(self) -> Callable[[Step], tuple[Batch, tf.Tensor]]:
        key = (self.make_samples, self.batch_size)
        made = _in_graph.get(key)
        if made is None:
            made = _in_graph[key] = _traced(self.make_samples)
        return made

    def locations(self, step: int, given: Step) -> tuple[Array, Array | None]:
        """Where the samples of this rank's batch stand in the stored order, without shuffling.

        Rows, [samples], and of users the positions in their histories.
        """
        plan = self.plan(0)
        low, high = slots(plan.batch_rows(step), *self._share)
        return self._own_rows[0] + step * plan.global_batch_size + np.arange(low, high), None

    def users_of(self, ids: Array, step: int, given: Step) -> Array:
        """Return numbers that tell the users of a batch's samples apart, without shuffling.

        A user is known by its id. Of stored samples, each without one counts as another user's.
        """
        return ids if ids.all() else tell_users_apart(ids, None, self.locations(step, given)[0])

    @cached_property
    def are_resident(self) -> bool:
        """Whether all stays on the device."""
        return self.megabytes(self.all_groups) <= self.data_memory_mb

    @cached_property
    def files(self) -> tuple[str, ...]:
        """The files, in their order."""
        return files_of(self.dataset)

    def keeps_together(self, column: str) -> bool:
        """Whether the samples of each id of a column come one after another, on one rank."""
        on_one_rank = self.global_size == 1 or self.contiguous
        return on_one_rank and not self.shuffle and come_together(self.files, column)

    def describe_memory(self) -> str:
        """Say what of the memory is taken, and whether all stays on the device."""
        takes = f"{self.describe_data()}, {self.megabytes(self.all_groups):,.0f} MB"
        allowed = f"the {self.data_memory_mb:,} MB of --data_memory_mb"
        if self.are_resident:
            return f"{takes} of {allowed}: all stay on the device"
        return f"{takes}, more than {allowed}: blocks of them are read ahead"

    @property
    def decodes_in_threads(self) -> bool:
        """Whether threads of ours decode what is read."""
        return False

    def describe_data(self) -> str:
        """Say how much there is to read."""
        return f"{self.samples:,} rows"

    # An epoch

    @property
    def global_batch_size(self) -> int:
        """Rows per step over all ranks."""
        return int(self.batch_size * self.global_size)

    def plan(self, epoch: int) -> EpochPlan:
        """Say which rows make up the batches of ``epoch``: of this rank's own, or of all."""
        longest = -(-sum(self.part_rows) // int(self.global_size))
        return EpochPlan(
            [stop - begin for begin, stop in self._rows_of_parts],
            int(self.batch_size) if self.contiguous else self.global_batch_size,
            bool(self.shuffle),
            self.seed,
            epoch,
            self.window_rows,
            bool(self.drop_last),
            -(-longest // int(self.batch_size)) if self.contiguous else 0,
        )

    @property
    def samples(self) -> int:
        """Samples of an epoch: here each row is one."""
        return sum(self.part_rows)

    @property
    def _share(self) -> tuple[int, int]:
        """Which share of the plan's batches is this rank's, of how many: all of its own rows."""
        return (0, 1) if self.contiguous else (self.global_rank, self.global_size)

    @cached_property
    def _own_rows(self) -> tuple[int, int]:
        """The first row that this rank reads, and the one after the last."""
        rows = sum(self.part_rows)
        return slots(rows, self.global_rank, self.global_size) if self.contiguous else (0, rows)

    @cached_property
    def _rows_of_parts(self) -> list[tuple[int, int]]:
        """Of each part, the first row that this rank goes through, and the one after the last."""
        starts = np.concatenate([[0], np.cumsum(self.part_rows, dtype=np.int64)])
        low, high = (np.clip(row - starts[:-1], 0, np.diff(starts)) for row in self._own_rows)
        return list(zip(low.tolist(), high.tolist(), strict=True))

    def inputs(self) -> Inputs:
        """Begin the epoch: give, for each step, what :meth:`make` makes its batch of."""
        self.num_rows_processed = 0
        _ = self.part_rows  # opened here, once for all readers
        if self.are_resident:
            _ = self._all_data
        begun = Inputs(self)
        self._begun.add(begun)
        return begun

    def read_epoch(self, plan: EpochPlan, first_step: int) -> Iterator[Step]:
        """Give each step of an epoch what it is made of, from ``first_step`` on."""
        seeds = self.seeds(plan)
        blocks = Background(self._blocks(plan, first_step), ahead=1)
        try:
            for first, count, data, order in blocks:
                for number in range(max(0, first_step - first), count):
                    yield Step(data, order, scalar_on_device(number), seeds)
        finally:
            blocks.stop()

    def _blocks(self, plan: EpochPlan, first_step: int) -> Iterator[tuple[int, int, Any, Any]]:
        """Steps whose order is known together: the first, how many, their data, their entries."""
        groups = [self.groups[part] for part in plan.part_order]
        number_of = {group: number for number, group in enumerate(self.all_groups)}
        at_once = self.data_memory_mb / 3  # one is used, one waits, one is on its way
        steps = min(plan.steps, max(plan.window_batches, ROWS_AHEAD // plan.global_batch_size) + 1)

        def fits(indices: range) -> bool:
            return self.are_resident or self.megabytes(groups[p] for p in indices) <= at_once

        for planned in planned_steps(plan, first_step, ROWS_AHEAD, fits):
            if self.are_resident:
                block = self._all_data
            else:
                with explaining_memory(self):
                    block = self.read([groups[index] for index in planned.indices], False)

            def entries_of(
                index: int, block: Block = block, first: int = planned.indices[0]
            ) -> Array:
                number = number_of[groups[index]] if self.are_resident else index - first
                part = int(plan.part_order[index])
                return self.part_entries(plan, block, part, number)[
                    slice(*self._rows_of_parts[part])
                ]

            entries = steps_entries(plan, planned, entries_of, *self._share, self.batch_size)
            order = np.full((self.batch_size, steps), -1, np.int64)
            order[:, : len(entries)] = entries.T
            yield planned.first, len(entries), block.tensors, tf.constant(order)
        done = plan.steps_with_rows
        if done < plan.steps:  # other ranks have rows still
            block = self._all_data if self.are_resident else self.read(groups[:1], False)
            order = np.full((self.batch_size, steps), -1, np.int64)
            yield done, plan.steps - done, block.tensors, tf.constant(order)

    @cached_property
    def _all_data(self) -> Block:
        found = _resident.get(self.key)
        if found is None:
            with explaining_memory(self):
                _resident[self.key] = found = self.read(self.all_groups, True)
        return found

    @property
    def first_step(self) -> int:
        """The step with which the next iteration begins."""
        return self._first_step

    def start_at(self, epoch: int, step: int = 0) -> None:
        """Let the next iteration begin with ``step`` of ``epoch``, reading nothing before it."""
        self.stop()
        self.epoch = epoch
        self._first_step = step

    def stop(self) -> None:
        """End the threads; the next iteration begins the epoch again."""
        for begun in list(self._begun):
            begun.close()
        self._begin_anew()

    def epochs(self, epochs: int = 1) -> Loader:
        """Give a loader that runs through ``epochs`` epochs in one iteration."""
        if epochs == self._epochs:
            return self
        longer = self.reader()
        longer._epochs = epochs
        return longer

    def reader(self) -> Loader:
        """Give a loader of the same rows, at the same epoch, that iterates by itself."""
        other = copy.copy(self)
        other._begin_anew()
        return other

    def _begin_anew(self) -> None:
        self._own: Inputs | None = None  # what next(loader) goes through
        self._peeked: list[Any] = []
        self._begun: weakref.WeakSet[Inputs] = weakref.WeakSet()

    # What Merlin and Keras call

    def __len__(self) -> int:
        """Count the steps, the same on every rank; like Merlin's, this restarts the epoch."""
        self._own, self._peeked = None, []
        return self.plan(0).steps * int(self._epochs)

    def __iter__(self) -> Iterator[Any]:
        begun = self.inputs()
        return (self._batch(given) for given in begun)

    def __next__(self) -> Any:
        if self._peeked:
            return self._peeked.pop()
        if self._own is None:
            self._own = self.inputs()
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

    def _batch(self, given: Step) -> Any:
        batch = self.whole(given)
        self.num_rows_processed += len(next(iter(batch[0].values())) if batch[0] else batch[1])
        for change in self._map_fns:
            batch = change(*batch)
        return batch

    @property
    def input_schema(self) -> Schema:
        """The columns that are read."""
        return self._input_schema

    @input_schema.setter
    def input_schema(self, value: Schema) -> None:
        if hasattr(self, "_own"):
            raise RuntimeError("The schema is that of the dataset: another one cannot be set.")
        LoaderBase.input_schema.fset(self, value)

    def _read_epochs(self) -> Iterator[Step]:
        for index in range(int(self._epochs)):
            first_step = self._first_step if index == 0 else 0
            yield from self.read_epoch(self.plan(self.epoch + index), first_step)


class Inputs(Iterator[Step]):
    """Inputs of the steps, read ahead in threads that end when this is dropped."""

    def __init__(self, loader: Loader) -> None:
        self.next_epoch = loader.epoch + int(loader._epochs)
        self._loader = weakref.ref(loader)
        self._made = Background(loader.reader()._read_epochs(), ahead=STEPS_AHEAD)
        self._is_over = False

    def __next__(self) -> Step:
        try:
            return next(self._made)
        except StopIteration:
            loader = self._loader()
            if loader is not None and not self._is_over:
                loader._finish(self.next_epoch)
            self._is_over = True
            raise

    def close(self) -> None:
        """End here; where the loader is does not change."""
        self._is_over = True
        self._made.stop()


def _traced(
    make: Callable[[Any, tf.Tensor, Any], Batch],
) -> Callable[[Step], tuple[Batch, tf.Tensor]]:
    """Trace what makes a batch and counts its rows; dropping a loader ends its threads."""

    def made_and_counted(step: Step) -> tuple[Batch, tf.Tensor]:
        batch = make(step.data, step.entries, step.seeds)
        return batch, tf.math.count_nonzero(step.entries >= 0)

    made: Callable[[Step], tuple[Batch, tf.Tensor]] = tf.function(
        made_and_counted, autograph=False, reduce_retracing=True
    )
    return made


@contextmanager
def explaining_memory(loader: Loader) -> Iterator[None]:
    """Say what to lower where a GPU's memory does not suffice for what is read."""
    try:
        yield
    except (MemoryError, RuntimeError, tf.errors.ResourceExhaustedError) as error:
        short = short_of_memory(error)
        if isinstance(error, tf.errors.ResourceExhaustedError):
            short = first_line(str(error))
        if short is None:
            raise
        raise MerlinSimError(
            f"the feed is out of GPU memory: {short} A smaller `data_memory_mb` "
            f"({loader.data_memory_mb}) needs less; TF_MEMORY_ALLOCATION "
            f"({os.environ.get('TF_MEMORY_ALLOCATION', '0.5')}) is what TensorFlow may take of it."
        ) from error


@lru_cache
def come_together(files: tuple[str, ...], user: str) -> bool:
    """Return whether the rows of each user with an id stand one after another in some files.

    A byte for each id is kept, and a part of the column at a time.
    """
    seen = np.zeros(0, np.bool_)
    last = None
    for path in files:
        with pq.ParquetFile(path) as file:
            for part in file.iter_batches(1 << 20, columns=[user]):
                ids = np.asarray(part.column(0)).astype(np.int64)
                if not len(ids):
                    continue
                begins = ids[np.append(ids[0] != last, ids[1:] != ids[:-1])]
                begins = begins[begins > 0]
                most = int(ids.max()) + 1
                if most > len(seen):
                    seen = np.append(seen, np.zeros(max(most, 2 * len(seen)) - len(seen), np.bool_))
                if seen[begins].any() or len(np.unique(begins)) < len(begins):
                    return False
                seen[begins] = True
                last = ids[-1]
    return True
