"""Samples made of users: the users are on the device, a step is told where its samples are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import tensorflow as tf

from ..foundation.exceptions import MerlinSimError
from ..schemas.dataset import DatasetDirectory
from .background import Background
from .behaviour_samples import LABEL, STORED, Batch, BehaviourSamples, Users
from .draws import fresh_seed, place_seed
from .epoch_plan import EpochPlan
from .loader import Inputs, Loader
from .sample_columns import SampleColumns
from .sample_order import (
    ORDER_OF_STRETCHES,
    Array,
    Stretching,
    each_of,
    planned_steps,
    steps_entries,
)
from .user_rows import UserBlock, UserRows

POSITIONS_TOGETHER = 8
ROWS_AHEAD = 1 << 21
"""Rows of all ranks whose order is worked out at a time."""
USERS_MEMORY_MB = 4096
"""Memory for users, unless it is set."""


class Step(NamedTuple):
    """What a step is given: where its samples are, and what they are made of."""

    users: Users
    order: tf.Tensor
    """[rows, steps] The entries of several steps."""
    number: tf.Tensor
    """Which of these steps it is."""
    seeds: tf.Tensor


@dataclass(frozen=True, eq=False)
class ResidentUsers:
    """Users that stay on the device, of all mappings."""

    block: UserBlock
    """What the order of samples is made of."""
    tensors: Users


_resident: WeakValueDictionary[Any, ResidentUsers] = WeakValueDictionary()
"""Those that a loader of this process has: the loaders of train and test share theirs."""


class SampleLoader(Loader):
    """A :class:`~.loader.Loader` whose rows are samples, made of users' histories on the device.

    It keeps all that the other one promises. Users that fit ``users_memory_mb`` are read once and
    stay on the device of each rank. More of them come block by block, the next one read while
    this one trains. The samples are the same.

    Args:
        dataset: as of Loader; names the files.
        batch_size: rows a step on this rank; with ``candidates`` a row is several samples.
        directory: the opened directory of users.
        mapping: ``train``, ``test``, ...
        positions_together: consecutive positions of a user that stay together when users are
            shuffled, before the rows of a window are.
        fresh_negatives: draw other negatives in every epoch.
        candidates: samples of a row, those of whole positions; see
            :meth:`~.behaviour_samples.BehaviourSamples.candidates_of_users`.
        negatives_read: as of :class:`~.sample_columns.SampleColumns`.
        users_memory_mb: memory for users on the device, in MB.
        window_rows: samples that are shuffled together.
        shuffle: as of Loader, and so on.
        seed: of the orders.
        drop_last: as of Loader.
        global_size: number of ranks.
        global_rank: this rank.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        directory: DatasetDirectory,
        mapping: str,
        positions_together: int = POSITIONS_TOGETHER,
        fresh_negatives: bool = False,
        candidates: int = 1,
        negatives_read: int | None = None,
        users_memory_mb: int = USERS_MEMORY_MB,
        window_rows: int = 65536,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        global_size: int | None = None,
        global_rank: int | None = None,
    ) -> None:
        """Check the arguments; users are read with the first batch."""
        if positions_together < 1:
            raise MerlinSimError(
                "`positions_together` should be a positive integer. "
                f"Received: `positions_together` = {positions_together}."
            )
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            global_size=global_size,
            global_rank=global_rank,
            drop_last=drop_last,
            seed=seed,
            window_rows=max(1, window_rows // candidates),
        )
        assert directory.users is not None
        of_position = directory.users.samples_per_position
        self.candidates = candidates
        self.fresh_negatives = fresh_negatives
        self.users_memory_mb = users_memory_mb
        grouped = candidates > 1
        self.stretching = Stretching(
            candidates // of_position if grouped else positions_together, of_position, grouped
        )
        self._directory = directory
        self._mapping = mapping
        self._negatives_read = negatives_read
        self._ordered: dict[Any, Array] = {}
        self._enough = (0, 0)
        self._make_eagerly = tf.function(
            self._made_and_counted, autograph=False, reduce_retracing=True
        )

    @cached_property
    def make_samples(self) -> BehaviourSamples:
        """The definition of a sample."""
        columns = SampleColumns.read(self._directory, self.input_schema, self._negatives_read)
        return BehaviourSamples(columns, self.candidates)

    @cached_property
    def users(self) -> UserRows:
        """Where users come from."""
        return UserRows(self._directory, self._mapping, self.make_samples.columns)

    @cached_property
    def part_rows(self) -> list[int]:
        """Rows of each part of the users."""
        return self.stretching.rows_of_parts(self.users)

    @cached_property
    def samples(self) -> int:
        """Samples of an epoch."""
        return sum(replace(self.stretching, are_rows=False).rows_of_parts(self.users))

    @property
    def decodes_in_threads(self) -> bool:
        """Whether threads make the batches: the step does."""
        return False

    @cached_property
    def are_resident(self) -> bool:
        """Whether all users stay on the device."""
        return self._megabytes(range(len(self.users.groups))) <= self.users_memory_mb

    def describe_memory(self) -> str:
        """Say how many users there are, and whether they stay on the device."""
        groups = self.users.groups
        interactions, users = sum(g.interactions for g in groups), sum(g.users for g in groups)
        stay = "all stay on the device" if self.are_resident else "blocks of them are read ahead"
        return (
            f"{users:,} users with {interactions:,} interactions, "
            f"{self._megabytes(range(len(groups))):,.0f} MB of the {self.users_memory_mb:,} MB of "
            f"--users_memory_mb: {stay}"
        )

    def _megabytes(self, groups: Iterable[int]) -> float:
        """What the users of some row groups take on the device."""
        users = self.users
        return (
            sum(
                users.groups[number].interactions * users.bytes_of_interaction
                + users.groups[number].users * users.bytes_of_user
                for number in groups
            )
            / 1e6
        )

    def inputs(self) -> Inputs:
        """Give, for each step of the epoch, what :meth:`make` makes its batch of."""
        return self.begin()

    def begin(self) -> Inputs:
        """Begin the epoch; users that stay on the device are this loader's."""
        if self.are_resident:
            _ = self._all_users
        return super().begin()

    def places(self, step: int, given: Step) -> tuple[Array, Array | None]:
        """Whose the samples of this rank's batch are, and their positions."""
        del step  # what is given says it
        entries = given.order.numpy()[:, int(given.number)]
        entries = entries[entries >= 0]
        codes, of_position = self.make_samples.codes, self.stretching.of_position
        places, which = entries // codes, entries % codes
        if self.candidates > 1:  # which tells how many positions follow
            places = each_of(places, which + 1)
            labels = given.users.of_positions.get(LABEL)
            samples = (
                of_position if labels is None else 1 + (of_position - 1) * labels.numpy()[places]
            )
            places = np.repeat(places, samples)
        rows = given.users.rows.numpy()[places]
        positions = places - given.users.first_targets.numpy()[rows]
        stored = given.users.more.get(STORED)
        return (rows if stored is None else stored.numpy()[rows]).astype(np.int64), positions

    def whole(self, given: Step) -> Any:
        """Make a batch for a loop of one's own, without rows that are missing."""
        batch, rows = self._make_eagerly(given)
        if int(rows) < self.batch_size:
            batch = tf.nest.map_structure(lambda values: values[: int(rows)], batch)
        columns, labels, weights = batch
        if self.candidates > 1:
            return columns, labels, weights
        return columns, labels[:, 0] if self.make_samples.columns.label else None

    def _made_and_counted(self, step: Step) -> tuple[Batch, tf.Tensor]:
        entries = tf.gather(step.order, step.number, axis=1)
        return self.make(step), tf.math.count_nonzero(entries >= 0)

    def make(self, step: Step) -> Batch:
        """Make the batch of a step, in TensorFlow ops."""
        entries = tf.gather(step.order, step.number, axis=1)
        return self.make_samples(step.users, entries, step.seeds)

    def read_epoch(self, plan: EpochPlan, first_step: int) -> Iterator[Step]:
        """Give each step of an epoch what it is made of, from ``first_step`` on."""
        seed = self._directory.users.seed  # type: ignore[union-attr]
        seed = fresh_seed(seed, plan.epoch) if self.fresh_negatives else seed
        seeds = tf.constant([seed, place_seed(seed)], tf.uint64)
        blocks = Background(self._blocks(plan, first_step), ahead=1)
        try:
            for first, count, users, order in blocks:
                for number in range(max(0, first_step - first), count):
                    yield Step(users, order, tf.constant(number), seeds)
        finally:
            blocks.stop()

    def _blocks(
        self, plan: EpochPlan, first_step: int
    ) -> Iterator[tuple[int, int, Users, tf.Tensor]]:
        """Steps whose order is known together: the first, how many, their users, their entries."""
        groups = [self.users.parts[part] for part in plan.part_order]
        at_once = self.users_memory_mb / 3  # one is used, one waits, one is on its way
        steps = min(plan.steps, max(plan.window_batches, ROWS_AHEAD // plan.global_batch_size) + 1)

        def fits(places: range) -> bool:
            return self.are_resident or self._megabytes(groups[p] for p in places) <= at_once

        for planned in planned_steps(plan, first_step, ROWS_AHEAD, fits):
            if self.are_resident:
                block, users = self._all_users.block, self._all_users.tensors
            else:
                read = [groups[place] for place in planned.places]
                block = self.users.read(read)
                users = self.users.tensors(block, *self._enough_for(block), read)

            def entries_of(
                place: int, block: UserBlock = block, first: int = planned.places[0]
            ) -> Array:
                number = groups[place] if self.are_resident else place - first
                return self._entries(plan, block, int(plan.part_order[place]), number)

            share = (self.global_rank, self.global_size, self.batch_size)
            entries = steps_entries(plan, planned, entries_of, *share)
            order = np.full((self.batch_size, steps), -1, np.int64)
            order[:, : len(entries)] = entries.T
            yield planned.first, len(entries), users, tf.constant(order)

    def _entries(self, plan: EpochPlan, block: UserBlock, part: int, number: int) -> Array:
        """The entries of a part in an epoch's order, of users that stay those of the last parts."""
        key = (plan.seed, plan.epoch, part) if self.are_resident else None
        if key is not None and key in self._ordered:
            return self._ordered[key]
        random = None
        if plan.shuffle:
            random = np.random.default_rng([plan.seed, plan.epoch, ORDER_OF_STRETCHES, part])
        entries = self.stretching.entries(block, self._mapping, number, random)
        if key is not None:
            self._ordered = {key: entries}
        return entries

    @cached_property
    def _all_users(self) -> ResidentUsers:
        found = _resident.get(self.users.key)
        if found is None:
            block = self.users.read(range(len(self.users.groups)))
            tensors = self.users.tensors(block)
            none = block.items[:0]
            on_host = replace(
                block, features={}, items=none, targets=none, of_positions={}, more={}
            )
            _resident[self.users.key] = found = ResidentUsers(on_host, tensors)
        return found

    def _enough_for(self, block: UserBlock) -> tuple[int, int]:
        """Interactions and users of the tensors of a block: seldom others than those before."""
        needed = max(len(block.items), len(block.targets)), len(block.starts) - 1
        interactions, users = (
            most if most >= size else 1 << (size - 1).bit_length()
            for most, size in zip(self._enough, needed, strict=True)
        )
        self._enough = interactions, users
        return self._enough
