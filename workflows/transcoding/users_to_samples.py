"""A dataset with one row per user becomes the one with one row per sample, file for file."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ...dataloader.item_check import check_items
from ...dataloader.user_check import StoredUsers, UserCheck
from ...foundation.atomic_write import copy_directory
from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Narrator, Silence
from ...foundation.staging import check_apart, staged_directory
from ...schemas.channels import TARGET_ITEM_FEATURES, USER_FEATURES
from ...schemas.dataset import DatasetDirectory
from ...schemas.parquet.footer import UNREADABLE, why
from ...schemas.stored_types import is_list
from ...schemas.users_files import COUNT, ID
from ...schemas.users_layout import UsersLayout
from ..behaviour.behaviour_columns import MOMENT, SECONDS, BehaviourColumns
from ..behaviour.dataset_spec import dataset_spec, users_layout_of
from ..behaviour.fitted import WORKFLOW_FILE
from ..behaviour.histories import Histories
from ..behaviour.rules import SampleRules
from ..behaviour.write_samples import write_samples_files
from ..continuation.newest_rows import HISTORY
from ..engine.backend import arrow_lists, lists_of_arrow
from ..engine.schedulers import Scheduler, SingleProcess
from ..features.feature_set import NO_FEATURES, FeatureSet
from ..vocabularies.vocabulary import CATEGORIES, Vocabularies

WORK = ".work"
Positions = dict[str, list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]]


@dataclass(frozen=True)
class UsersTranscoder:
    """Writes the files that ``preprocess --layout samples`` would have written of the same log."""

    dataset: DatasetDirectory
    narrator: Narrator = field(default_factory=Silence)
    scheduler: Scheduler = field(default_factory=SingleProcess)

    def transcode(self, output: Path, *, overwrite: bool = False) -> dict[str, int]:
        """Make the dataset directory ``output``; it appears whole or not at all.

        Returns:
            Mapping -> the number of its samples.
        """
        check_apart(output, [self.dataset.path])
        if self._layout.negatives_not_in_history:
            raise MerlinSimError(
                f"{self.dataset.path}: its negatives are none of their user's own items "
                "(`--negatives_not_in_history`): expected negatives that samples can be made with "
                "from a part of the history. Training and inference read it as it is."
            )
        columns, rules, sizes = self._columns(), self._rules(), self._sizes()
        self._require_own_names(columns, rules)
        source = self.dataset.path
        with staged_directory(output, overwrite=overwrite, say=self.narrator.say) as staged:
            histories = Histories(staged / WORK, columns)
            positions: Positions = {mapping: [] for mapping in self._layout.positions}
            self._check_items()
            histories.fill(self._tables(positions))
            for mapping, pairs in positions.items():
                begins, ends = (np.concatenate(part) for part in zip(*pairs, strict=True))
                histories.write_positions(mapping, begins, ends)
            vocabularies = Vocabularies(source / CATEGORIES)
            rows = write_samples_files(
                staged,
                histories,
                rules,
                vocabularies,
                sizes,
                self.scheduler,
                self.narrator,
                list(positions),
            )
            shutil.rmtree(staged / WORK)
            copy_directory(source / CATEGORIES, staged / CATEGORIES)
            if (source / WORKFLOW_FILE).is_file():
                shutil.copy(source / WORKFLOW_FILE, staged / WORKFLOW_FILE)
            if (source / HISTORY).is_dir():
                copy_directory(source / HISTORY, staged / HISTORY)
        return rows

    @property
    def _layout(self) -> UsersLayout:
        assert self.dataset.users is not None
        return self.dataset.users

    def _columns(self) -> BehaviourColumns:
        layout = self._layout
        user, *others = self.dataset.channels[USER_FEATURES]
        return BehaviourColumns(
            user,
            layout.history,
            layout.times or f"time of {layout.history}",  # no column of a dataset
            tuple(others),
            layout.item_features,
            features=FeatureSet(time_intervals=layout.time_unit) if layout.times else NO_FEATURES,
            own_time_excluded=layout.same_time is not None,
            steady=tuple(others),
        )

    def _rules(self) -> SampleRules:
        spec, layout = self.dataset.spec, self._layout
        (longest,) = spec.feature_spec[self.dataset.channels["positive_history"][0]].dimensions or (
            1,
        )
        return SampleRules(
            longest,
            seed=layout.seed,
            negatives=layout.negatives,
            negatives_per_positive=layout.negatives_per_positive,
        )

    def _sizes(self) -> dict[str, int]:
        columns, spec, channels = self._columns(), self.dataset.spec, self.dataset.channels
        names = [*channels[USER_FEATURES], *channels[TARGET_ITEM_FEATURES]]
        domains = (*columns.users, *columns.items)
        return {
            domain: int(spec.feature_spec[name].cardinality or 0)
            for domain, name in zip(domains, names, strict=True)
        }

    def _require_own_names(self, columns: BehaviourColumns, rules: SampleRules) -> None:
        """Samples are written under the names that ``preprocess`` gives."""
        spec = self.dataset.spec
        same = dataset_spec(columns, self._sizes(), rules.max_sequence_length, {})
        table = users_layout_of(columns, rules).item_table
        if same.channel_spec != spec.channel_spec or same.feature_spec != spec.feature_spec:
            raise MerlinSimError(
                f"{self.dataset.path}: expected the features that `preprocess` gives a dataset of "
                f"{columns.user} and {columns.item}: {', '.join(same.feature_spec)} with their "
                f"types. Received: {', '.join(spec.feature_spec)}."
            )
        if self._layout.item_table != table:
            raise MerlinSimError(
                f"{self.dataset.path}: metadata.users.item_table: expected {table}. "
                f"Received: {self._layout.item_table}."
            )

    def _tables(self, positions: Positions) -> Iterator[pa.Table]:
        """Give the users of all files, checked, and gather their positions."""
        layout, sizes, columns = self._layout, self._sizes(), self._columns()
        files = {mapping: self.dataset.stored_files(mapping) for mapping in layout.positions}
        first = next(iter(files))
        if any(paths != files[first] for paths in files.values()):
            raise MerlinSimError(
                f"{self.dataset.path}: expected the same files of users in "
                f"{' and '.join(files)}: each of their samples is made in the order of the users."
            )
        largest = {name: sizes[name] for name in columns.users}
        of_items = (columns.item, sizes[columns.item])
        check = UserCheck(largest, *of_items, layout.positions, layout.times, layout.same_time)
        times = [] if layout.times is None else [layout.times]
        same_time = [] if layout.same_time is None else [layout.same_time]
        names = [name for pair in layout.positions.values() for name in pair]
        for path in files[first]:
            row = 0
            for table in _row_groups(path, [*largest, *names, columns.item, *times, *same_time]):
                stored = self._stored(path, row, table)
                check(stored)
                for mapping, pair in stored.positions.items():
                    positions[mapping].append(pair)
                row += table.num_rows
                table = table.rename_columns(
                    [SECONDS if n in times else n for n in table.column_names]
                )
                if stored.same_time is not None:
                    table = table.append_column(MOMENT, _begins_of_times(*stored.same_time))
                yield table

    def _check_items(self) -> None:
        """Look at the table of items, as the feed does before it makes samples."""
        layout, columns, sizes = self._layout, self._columns(), self._sizes()
        path = self.dataset.path / layout.item_table
        with _read(path):
            names = list(dict.fromkeys([ID, COUNT, *layout.item_features]))
            table = pq.read_table(path, columns=names)
        largest = [sizes[name] for name in columns.items]
        check_items(path, table, layout.item_features, largest, layout.negatives)

    def _stored(self, path: Path, row: int, table: pa.Table) -> StoredUsers:
        for name in table.column_names:
            column = table[name].combine_chunks()
            inner = column.flatten() if pa.types.is_nested(column.type) else column
            if column.null_count or inner.null_count:
                raise MerlinSimError(
                    f"{path}, rows {row + 1} to {row + table.num_rows}: column {name} holds a "
                    "missing value. Received: null."
                )
        columns, layout = self._columns(), self._layout
        numbers = {name: np.asarray(table[name]) for name in columns.users}
        pairs = {
            mapping: tuple(np.asarray(table[name]).astype(np.int64) for name in pair)
            for mapping, pair in layout.positions.items()
        }
        items, starts = lists_of_arrow(table[columns.item].combine_chunks())
        ranges = {mapping: (begins, ends) for mapping, (begins, ends) in pairs.items()}
        times = None
        if layout.times is not None:
            times = lists_of_arrow(table[layout.times].combine_chunks(), "float64")
        same_time = None
        if layout.same_time is not None:
            same_time = lists_of_arrow(table[layout.same_time].combine_chunks())
        return StoredUsers(
            lambda user: f"{path}, row {row + user + 1}",
            numbers,
            items,
            starts,
            ranges,
            times,
            same_time,
        )


def _begins_of_times(counts: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> pa.Array:
    """Of each interaction the place of the first one of its time, as lists: one of each user."""
    return arrow_lists(np.arange(len(counts)) - counts, starts)


def _row_groups(path: Path, names: list[str]) -> Iterator[pa.Table]:
    """The users of a file, with histories as plain lists of numbers."""
    with _read(path), pq.ParquetFile(path) as file:
        groups = file.metadata.num_row_groups
    for group in range(groups):
        with _read(path), pq.ParquetFile(path) as file:
            table = file.read_row_group(group, columns=names, use_threads=False)
            table = pa.table([_plain(table[name]) for name in names], names)
        yield table


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if is_list(kind):
        inner = kind.value_type
        return column.cast(pa.list_(inner.value_type if pa.types.is_dictionary(inner) else inner))
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column


@contextlib.contextmanager
def _read(path: Path) -> Iterator[None]:
    """Name the file that cannot be read: where it stands in, a directory is being written."""
    try:
        yield
    except UNREADABLE as error:
        raise MerlinSimError(f"{path} cannot be read as parquet: {why(error)}.") from error
