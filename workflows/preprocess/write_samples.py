"""Samples are made of users' rows and written, one row each, dealt to files by a hash."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from ...dataloader.behaviour_samples import EARLIER, HASH, Batch, BehaviourSamples, Users
from ...dataloader.draws import position_seed, row_key, sample_key, user_key
from ...dataloader.epoch_plan import Segmentation
from ...dataloader.sample_columns import SampleColumns
from ...dataloader.user_rows import UserBlock, UserRows
from ...foundation.hashing import ORDER_SALT, SLICE_SALT, mix_arrays, tell_users_apart
from ...foundation.progress import Reporter
from ...schemas.channels import HISTORY_TIME_INTERVALS, LABEL, NEGATIVE_HISTORY, POSITIVE_HISTORY
from ...schemas.dataset import DatasetDirectory, write_documents
from ...schemas.feature_spec import Chunk, FeatureSpec
from ...schemas.merlin_schema import to_merlin_schema
from ...schemas.users_layout import USERS, UsersLayout
from ..frames import arrow_lists
from ..parquet_files import ROWS_PER_FILE, columns_with_few_ids, write_samples_file

SAMPLES = 1 << 14
"""So many are made at a time."""
WIDTHS = 8
"""Of so many lengths of histories, to make little padding."""
FILES = 2
"""So many are made at a time: one is written while the next one is made."""
Numbers = npt.NDArray[np.int64]


def write_samples(
    dataset: DatasetDirectory, directory: Path, reporter: Reporter, pad: bool = False
) -> dict[str, int]:
    """Write the samples of users, and the documents that describe them; count each mapping's."""
    users = AllUsers(dataset)
    sources = [SamplesOfUsers(users, mapping, pad) for mapping in dataset.spec.source_spec]
    rows = {of.mapping: len(of.entries) for of in sources}
    spec = samples_spec(dataset.spec, {of.mapping: of.files for of in sources})
    few_ids = columns_with_few_ids(to_merlin_schema(spec))
    with reporter.phase("writing samples", sum(rows.values())) as report:
        for of in sources:
            (directory / of.mapping).mkdir()

            def write(number: int, of: SamplesOfUsers = of) -> int:
                table = of.table(number)
                write_samples_file(table, directory / of.files[number], few_ids)
                return int(table.num_rows)

            with ThreadPoolExecutor(FILES) as pool:
                for written in pool.map(write, range(len(of.files))):
                    report(written, written)
    write_documents(directory, spec)
    return rows


def samples_spec(spec: FeatureSpec, files: dict[str, list[str]]) -> FeatureSpec:
    """Describe the samples of a dataset of users."""
    sources = {
        mapping: (Chunk("parquet", spec.source_spec[mapping][0].features, tuple(names)),)
        for mapping, names in files.items()
    }
    metadata = {key: value for key, value in spec.metadata.items() if key != USERS}
    return replace(spec, source_spec=sources, metadata=metadata)


@dataclass(frozen=True)
class AllUsers:
    """All users of a dataset, in memory."""

    dataset: DatasetDirectory

    @cached_property
    def samples(self) -> BehaviourSamples:
        """The definition of a sample."""
        return BehaviourSamples(SampleColumns.read(self.dataset, self.dataset.schema))

    @cached_property
    def block(self) -> UserBlock:
        """The users, as arrays."""
        return self._rows.read(range(len(self._rows.groups)))

    @cached_property
    def layout(self) -> UsersLayout:
        """How samples are made of them."""
        return self._rows.layout

    @cached_property
    def _rows(self) -> UserRows:
        mapping = next(iter(self.dataset.spec.source_spec))
        return UserRows(self.dataset, mapping, self.samples.columns, on_cpu=True)

    def make(self, entries: Numbers, width: int, seed: int) -> Batch:
        """Make samples whose histories are cut to their newest ``width`` interactions."""
        users, by_width = self._makers
        columns = replace(self.samples.columns, width=width, negatives_read=width)
        make: Callable[..., Batch] = BehaviourSamples(columns)
        if len(entries) >= SAMPLES // 4:  # fewer are not worth a trace, nor is the first run
            if width in by_width:
                make = by_width[width]
            else:
                given = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), users)
                shapes = tf.TensorSpec([None], tf.int64), tf.TensorSpec([2], tf.uint64)
                signature = [given, *shapes]
                by_width[width] = tf.function(make, input_signature=signature, autograph=False)
        return make(
            users, tf.constant(entries), tf.constant([seed, position_seed(seed)], tf.uint64)
        )

    @cached_property
    def _makers(self) -> tuple[Users, dict[int, Callable[..., Batch]]]:
        """The users on the device, and what makes samples of each width."""
        return self._rows.tensors(self.block), {}


@dataclass(frozen=True)
class SamplesOfUsers:
    """The samples of a mapping, dealt to files by a hash."""

    users: AllUsers
    mapping: str
    pad: bool = False
    """Whether histories are left-padded with 0 to their longest length."""

    @cached_property
    def files(self) -> list[str]:
        """The files that they go to, relative to the dataset directory."""
        count = max(1, -(-len(self.entries) // ROWS_PER_FILE))
        return [f"{self.mapping}/part.{number}.parquet" for number in range(count)]

    @cached_property
    def entries(self) -> Numbers:
        """The samples in the order of the users."""
        cut = Segmentation(1, self._of_position, are_rows=False)
        groups = range(len(self.users.block.group_starts) - 1)
        found = [cut.entries(self.users.block, self.mapping, number, None) for number in groups]
        return np.concatenate([np.empty(0, np.int64), *found])

    @property
    def _of_position(self) -> int:
        return self.users.layout.samples_per_position

    @cached_property
    def _file_of(self) -> npt.NDArray[np.uint32]:
        """The file of each sample; a positive and its negatives are in the same one."""
        found = np.zeros(len(self.entries), np.uint32)
        for first in range(0, len(found) if len(self.files) > 1 else 0, SAMPLES):
            some = slice(first, first + SAMPLES)
            row, position, _, _ = self._decoded(self.entries[some])
            scattered = mix_arrays(row_key(self._key_of(row), position, 0).numpy() ^ SLICE_SALT)
            found[some] = scattered % np.uint64(len(self.files))
        return found

    @property
    def _seed(self) -> int:
        return self.users.layout.seed

    @cached_property
    def _users(self) -> Numbers:
        features = self.users.block.features
        ids = features[self.users.samples.columns.user]
        return tell_users_apart(ids, self.users.block.more.get(HASH), np.arange(len(ids)))

    def _key_of(self, row: Numbers) -> tf.Tensor:
        return user_key(tf.constant(self._seed, tf.uint64), self._users[row])

    def _decoded(self, entries: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Whose samples are, their positions, labels, and which negatives they are."""
        interaction, slot = entries // self._of_position, entries % self._of_position
        found = self.users.block.positions
        row = np.searchsorted(found.starts, interaction, side="right") - 1
        is_own = slot == self._of_position - 1
        label = (
            is_own.astype(np.int64) if found.labels is None else is_own * found.labels[interaction]
        )
        return row, interaction - found.starts[row], label, np.where(is_own, 0, slot)

    def table(self, number: int) -> pa.Table:
        """Make the samples of a file, in the order of a hash."""
        entries = self.entries[self._file_of == number]
        row, position, label, negative = self._decoded(entries)
        earlier = self.users.block.more.get(EARLIER)
        position = position if earlier is None else position + earlier[row]
        keys = sample_key(self._key_of(row), position, label, negative).numpy()
        order = np.argsort(mix_arrays(keys ^ ORDER_SALT), kind="stable")
        entries, seen = entries[order], self._seen(entries[order])
        by_length = np.argsort(
            seen, kind="stable"
        )  # as many positions are made as some sample sees
        pieces = [by_length[n : n + SAMPLES] for n in range(0, max(1, len(entries)), SAMPLES)]
        tables = [self._rows(entries[rows], int(seen[rows].max(initial=0))) for rows in pieces]
        back = np.empty_like(by_length)
        back[by_length] = np.arange(len(by_length))
        return pa.concat_tables(tables).combine_chunks().take(back)

    def _seen(self, entries: Numbers) -> Numbers:
        """How many positions of their histories samples have."""
        found, (_, position, _, _) = self.users.block.positions, self._decoded(entries)
        seen = position if found.seen is None else found.seen[entries // self._of_position]
        longest = self.users.samples.columns.width
        of_each: Numbers = np.full_like(seen, longest) if self.pad else np.minimum(seen, longest)
        return of_each

    def _rows(self, entries: Numbers, longest: int) -> pa.Table:
        channels, width = self.users.dataset.channels, self.users.samples.columns.width
        step = max(1, width // WIDTHS)
        width = min(width, max(1, -(-longest // step)) * step)
        made, labels, _ = self.users.make(entries, width, self._seed)
        columns = {name: values.numpy() for name, values in made.items()}
        real = columns[channels[POSITIVE_HISTORY][0]] > 0
        real |= self.pad
        histories = {*channels[POSITIVE_HISTORY], *channels.get(NEGATIVE_HISTORY, ())}
        histories |= {*channels.get(HISTORY_TIME_INTERVALS, ())}
        table = {channels[LABEL][0]: pa.array(labels.numpy()[:, 0])}
        for name, values in columns.items():
            values = values.astype(np.int64) if values.dtype.kind == "i" else values
            if values.ndim == 1:
                table[name] = pa.array(values)
                continue
            kept = real if name in histories else np.ones(values.shape, bool)
            offsets = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
            table[name] = arrow_lists(values[kept], offsets)
        names = self.users.dataset.spec.source_spec[self.mapping][0].features
        return pa.table({name: table[name] for name in names})
