"""A dataset with one row per user becomes the one with one row per sample, file for file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from ...dataloader.behaviour_samples import BehaviourSamples, Users
from ...dataloader.draws import place_seed
from ...dataloader.sample_columns import SampleColumns
from ...dataloader.sample_order import Stretching
from ...dataloader.user_rows import UserBlock, UserRows
from ...foundation.atomic_write import copy_directory
from ...foundation.hashing import (
    ORDER_SALT,
    SLICE_SALT,
    mix_arrays,
    row_key_arrays,
    sample_key_arrays,
)
from ...foundation.progress import Narrator, Silence
from ...foundation.staging import check_apart, staged_directory
from ...schemas.channels import LABEL, NEGATIVE_HISTORY, POSITIVE_HISTORY
from ...schemas.dataset import DatasetDirectory, write_documents
from ...schemas.specs.feature_spec import Chunk, FeatureSpec
from ...schemas.translation.merlin_schema import to_merlin_schema
from ...schemas.users_layout import USERS, UsersLayout
from ..behaviour.encode_and_sample import Part, columns_with_few_ids, count_parts
from ..behaviour.fitted import WORKFLOW_FILE
from ..continuation.newest_rows import HISTORY
from ..engine.backend import arrow_lists
from ..engine.parquet_files import write_samples_file
from ..vocabularies.vocabulary import CATEGORIES

SAMPLES = 1 << 14
"""So many are made at a time."""
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class UsersTranscoder:
    """Writes the files that ``preprocess --layout samples`` would have written of the same log."""

    dataset: DatasetDirectory
    narrator: Narrator = field(default_factory=Silence)

    def transcode(self, output: Path, *, overwrite: bool = False) -> dict[str, int]:
        """Make the dataset directory ``output``; it appears whole or not at all.

        Returns:
            Mapping -> the number of its samples.
        """
        source = self.dataset.path
        check_apart(output, [source])
        sources = [SamplesOfUsers(self.dataset, mapping) for mapping in self._layout.positions]
        rows = {of.mapping: len(of.entries) for of in sources}
        parts = {of.mapping: of.parts for of in sources}
        spec = samples_spec(self.dataset.spec, parts)
        few_ids = columns_with_few_ids(to_merlin_schema(spec))
        with staged_directory(output, overwrite=overwrite, say=self.narrator.say) as staged:
            with self.narrator.phase("writing samples", sum(rows.values())) as report:
                for of in sources:
                    (staged / of.mapping).mkdir()
                    for part in of.parts:
                        table = of.table(part)
                        write_samples_file(table, staged / part.file, few_ids)
                        report(table.num_rows, table.num_rows)
            write_documents(staged, spec)
            copy_fitted(source, staged)
        return rows

    @property
    def _layout(self) -> UsersLayout:
        assert self.dataset.users is not None
        return self.dataset.users


def copy_fitted(source: Path, staged: Path) -> None:
    """Copy the vocabularies, the fitted workflow and what it keeps of its log."""
    for name in (CATEGORIES, HISTORY):
        if (source / name).is_dir():
            copy_directory(source / name, staged / name)
    if (source / WORKFLOW_FILE).is_file():
        shutil.copy(source / WORKFLOW_FILE, staged / WORKFLOW_FILE)


def samples_spec(spec: FeatureSpec, parts: dict[str, list[Part]]) -> FeatureSpec:
    """Describe the samples of a dataset of users."""
    sources = {
        mapping: (
            Chunk("parquet", spec.source_spec[mapping][0].features, tuple(p.file for p in files)),
        )
        for mapping, files in parts.items()
    }
    metadata = {key: value for key, value in spec.metadata.items() if key != USERS}
    return replace(spec, source_spec=sources, metadata=metadata)


@dataclass(frozen=True)
class SamplesOfUsers:
    """The samples of a mapping, dealt to parts by a hash. All users are in memory."""

    dataset: DatasetDirectory
    mapping: str

    @cached_property
    def parts(self) -> list[Part]:
        """The files that they go to."""
        of = count_parts(len(self.entries))
        return [Part(self.mapping, number, of) for number in range(of)]

    @cached_property
    def samples(self) -> BehaviourSamples:
        """The definition of a sample."""
        return BehaviourSamples(SampleColumns.read(self.dataset, self.dataset.schema))

    @cached_property
    def entries(self) -> Numbers:
        """The samples in the order of the users."""
        cut = Stretching(1, self.samples.columns.of_position, are_rows=False)
        groups = range(len(self._rows.groups))
        found = [cut.entries(self._block, self.mapping, number, None) for number in groups]
        return np.concatenate([np.empty(0, np.int64), *found])

    @cached_property
    def _rows(self) -> UserRows:
        with_times = self.samples.columns.intervals is not None
        return UserRows(self.dataset, self.mapping, with_times, on_cpu=True)

    @cached_property
    def _block(self) -> UserBlock:
        return self._rows.read(range(len(self._rows.groups)))

    @cached_property
    def _users(self) -> Users:
        return self._rows.tensors(self._block)

    @cached_property
    def _part_of(self) -> npt.NDArray[np.uint32]:
        """The part of each sample; a positive and its negatives are in the same one."""
        found = np.zeros(len(self.entries), np.uint32)
        for first in range(0, len(found) if len(self.parts) > 1 else 0, SAMPLES):
            some = slice(first, first + SAMPLES)
            user, position, _, _ = self._places(self.entries[some])
            keys = row_key_arrays(self._rows.layout.seed, user, position, 0 * position, np)
            scattered = mix_arrays(keys ^ SLICE_SALT, np)
            found[some] = scattered % np.uint64(len(self.parts))
        return found

    def _places(self, entries: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Whose samples are, their positions, labels, and which negatives they are."""
        of_position = self.samples.columns.of_position
        place, slot = entries // of_position, entries % of_position
        starts = self._block.starts
        row = np.searchsorted(starts, place, side="right") - 1
        label = (slot == of_position - 1).astype(np.int64)
        user = self._block.features[self.samples.columns.user][row]
        return user, place - starts[row], label, np.where(label == 1, 0, slot)

    def table(self, part: Part) -> pa.Table:
        """Make the samples of a part, in the order of a hash."""
        entries = self.entries[self._part_of == part.number]
        seed = self._rows.layout.seed
        user, position, label, negative = self._places(entries)
        keys = sample_key_arrays(seed, user, position, label, negative, np)
        order = np.argsort(mix_arrays(keys ^ ORDER_SALT, np), kind="stable")
        chunks = list(self._chunks(entries[order])) or [self._chunk(entries)]
        return pa.concat_tables(chunks)

    def _chunks(self, entries: Numbers) -> Iterator[pa.Table]:
        for first in range(0, len(entries), SAMPLES):
            yield self._chunk(entries[first : first + SAMPLES])

    def _chunk(self, entries: Numbers) -> pa.Table:
        seed, channels = self._rows.layout.seed, self.dataset.channels
        seeds = tf.constant([seed, place_seed(seed)], tf.uint64)
        made, labels, _ = self._make(self._users, tf.constant(entries), seeds)
        columns = {name: values.numpy() for name, values in made.items()}
        real = columns[channels[POSITIVE_HISTORY][0]] > 0
        offsets = np.concatenate([[0], np.cumsum(real.sum(axis=1))])
        table = {channels[LABEL][0]: pa.array(labels.numpy()[:, 0])}
        histories = {*channels[POSITIVE_HISTORY], *channels.get(NEGATIVE_HISTORY, ())}
        for name, values in columns.items():
            values = values.astype(np.int64) if values.dtype.kind == "i" else values
            is_list = name in histories or name == self.samples.columns.intervals
            table[name] = arrow_lists(values[real], offsets) if is_list else pa.array(values)
        return pa.table({name: table[name] for name in self._names})

    @property
    def _names(self) -> tuple[str, ...]:
        return self.dataset.spec.source_spec[self.mapping][0].features

    @cached_property
    def _make(self) -> Callable[..., tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]]:
        shapes = tf.TensorSpec([None], tf.int64), tf.TensorSpec([2], tf.uint64)
        users = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), self._users)
        make: Callable[..., tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]] = tf.function(
            self.samples, input_signature=[users, *shapes], autograph=False
        )
        return make
