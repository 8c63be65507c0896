"""Samples made of users: the users are on the device, a step takes its samples by number."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from ..foundation.exceptions import MerlinSimError
from ..foundation.gpu_forms import has_gpu_forms
from ..foundation.hashing import tell_users_apart
from ..schemas.channels import USER_FEATURES
from ..schemas.dataset import DatasetDirectory
from .behaviour_samples import HASH, LABEL, STORED, BehaviourSamples
from .draws import fresh_seed, position_seed
from .epoch_plan import ORDER_OF_SEGMENTS, EpochPlan, Segmentation, each_of
from .loader import Array, Block, Loader, Step
from .sample_columns import SampleColumns
from .user_rows import UserBlock, UserRows

POSITIONS_TOGETHER = 8
_made: weakref.WeakValueDictionary[Any, BehaviourSamples] = weakref.WeakValueDictionary()
"""The definitions of samples that are in use."""


def _at(values: tf.Tensor, indices: Array) -> Any:
    """Bring some values to the host, and no more."""
    return tf.gather(values, indices).numpy()


class SampleLoader(Loader):
    """A :class:`~.loader.Loader` whose rows are samples, made of users' histories on the device.

    Where users come block by block, the samples are the same.

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
        window_rows: samples that are shuffled together.
        options: of Loader.
    """

    tells_users_apart = True

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
        window_rows: int = 65536,
        **options: Any,
    ) -> None:
        if positions_together < 1:
            raise MerlinSimError(
                "`positions_together` should be a positive integer. "
                f"Received: `positions_together` = {positions_together}."
            )
        super().__init__(
            dataset, batch_size, window_rows=max(1, window_rows // candidates), **options
        )
        assert directory.users is not None
        of_position = directory.users.samples_per_position
        self.candidates = candidates
        self.fresh_negatives = fresh_negatives
        grouped = candidates > 1
        self.segmentation = Segmentation(
            candidates // of_position if grouped else positions_together, of_position, grouped
        )
        self._directory = directory
        self._mapping = mapping
        self._negatives_read = negatives_read
        self._ordered: dict[Any, Array] = {}
        self._enough = (0, 0)

    @cached_property
    def make_samples(self) -> BehaviourSamples:
        """The definition of a sample; loaders of the same columns of a directory share it."""
        directory, names = self._directory, tuple(self.input_schema.column_names)
        key = (id(directory), names, self._negatives_read, self.candidates, has_gpu_forms())
        made = _made.get(key)
        if made is None:
            columns = SampleColumns.read(directory, self.input_schema, self._negatives_read)
            made = BehaviourSamples(columns, self.candidates)
            made.directory = directory  # no other has its id while this is there
            _made[key] = made
        return made

    @cached_property
    def users(self) -> UserRows:
        """Where users come from."""
        return UserRows(self._directory, self._mapping, self.make_samples.columns)

    @cached_property
    def part_rows(self) -> list[int]:
        """Rows of each part of the users."""
        return self.segmentation.rows_of_parts(self.users)

    @cached_property
    def samples(self) -> int:
        """Samples of an epoch."""
        return sum(replace(self.segmentation, are_rows=False).rows_of_parts(self.users))

    @property
    def groups(self) -> list[int]:
        """Of each part, the number of its row group."""
        return self.users.parts

    @property
    def all_groups(self) -> range:
        """The numbers of all row groups: users are those of all mappings."""
        return range(len(self.users.groups))

    @property
    def key(self) -> Any:
        """The same of all mappings of the same files."""
        return self.users.key

    def describe_data(self) -> str:
        """Say how many users there are."""
        groups = self.users.groups
        interactions, users = sum(g.interactions for g in groups), sum(g.users for g in groups)
        return f"{users:,} users with {interactions:,} interactions"

    def megabytes(self, groups: Iterable[int]) -> float:
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

    def read(self, groups: Sequence[int], are_all: bool) -> Block:
        """Read the users of some row groups."""
        block = self.users.read(groups)
        if not are_all:
            return Block(block, self.users.tensors(block, *self._enough_for(block), groups))
        none = block.items[:0]
        on_host = replace(block, features={}, items=none, targets=none, of_positions={}, more={})
        return Block(on_host, self.users.tensors(block))

    def seeds(self, plan: EpochPlan) -> tf.Tensor:
        """Of the samples' draws, and of those of negative histories."""
        seed = self._directory.users.seed  # type: ignore[union-attr]
        seed = fresh_seed(seed, plan.epoch) if self.fresh_negatives else seed
        return tf.constant([seed, position_seed(seed)], tf.uint64)

    def keeps_together(self, column: str) -> bool:
        """See :class:`~.loader.Loader`: samples are made user by user."""
        of_users = self._directory.channels.get(USER_FEATURES, ())
        return column in of_users and super().keeps_together(column)

    def locations(self, step: int, given: Step) -> tuple[Array, Array | None]:
        """Whose the samples of this rank's batch are, and their positions."""
        del step  # what is given says it
        rows, positions = self._rows_of(given)
        stored = given.data.more.get(STORED)
        return (rows if stored is None else _at(stored, rows)).astype(np.int64), positions

    def users_of(self, ids: Array, step: int, given: Step) -> Array:
        """See :class:`~.loader.Loader`; a user without an id is known by a hash, or by its row."""
        hashes = given.data.more.get(HASH)
        if hashes is None or ids.all():
            return super().users_of(ids, step, given)
        rows, _ = self._rows_of(given)
        return tell_users_apart(ids, _at(hashes, rows), rows)

    def _rows_of(self, given: Step) -> tuple[Array, Array]:
        """Whose the samples of a batch are, by their rows on the device, and their positions."""
        entries = given.order.numpy()[:, int(given.number)]
        entries = entries[entries >= 0]
        codes, of_position = self.make_samples.codes, self.segmentation.of_position
        interactions, which = entries // codes, entries % codes
        if self.candidates > 1:  # which says how many positions follow
            interactions = each_of(interactions, which + 1)
            labels = given.data.of_positions.get(LABEL)
            samples = (
                of_position if labels is None else 1 + (of_position - 1) * _at(labels, interactions)
            )
            interactions = np.repeat(interactions, samples)
        rows = _at(given.data.rows, interactions)
        return rows, interactions - _at(given.data.first_targets, rows)

    def whole(self, given: Step) -> Any:
        """Make a batch for a loop of one's own: of users x candidates with its weights."""
        return self.present(given) if self.candidates > 1 else super().whole(given)

    def part_entries(self, plan: EpochPlan, block: Block, part: int, number: int) -> Array:
        """The entries of a part in an epoch's order, of users that stay those of the last parts."""
        key = (plan.seed, plan.epoch, part) if self.are_resident else None
        if key is not None and key in self._ordered:
            return self._ordered[key]
        random = None
        if plan.shuffle:
            random = np.random.default_rng([plan.seed, plan.epoch, ORDER_OF_SEGMENTS, part])
        entries = self.segmentation.entries(block.on_host, self._mapping, number, random)
        if key is not None:
            self._ordered = {key: entries}
        return entries

    def _enough_for(self, block: UserBlock) -> tuple[int, int]:
        """Interactions and users of the tensors of a block: seldom others than those before."""
        needed = max(len(block.items), len(block.targets)), len(block.starts) - 1
        interactions, users = (
            most if most >= size else 1 << (size - 1).bit_length()
            for most, size in zip(self._enough, needed, strict=True)
        )
        self._enough = interactions, users
        return self._enough
