"""A dataset with one row per user becomes the one with one row per sample, and back."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from ...foundation.exceptions import MerlinSimError, SpecError
from ...foundation.files import check_apart, copy_directory, staged_directory
from ...foundation.hashing import WITHOUT_ID
from ...foundation.progress import Report, Reporter, Silence
from ...schemas.channels import (
    LABEL,
    NEGATIVE_HISTORY,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    USER_FEATURES,
)
from ...schemas.dataset import DatasetDirectory, write_documents
from ...schemas.feature_spec import Chunk, FeatureSpec
from ...schemas.item_table import COUNT, ID, read_vocabulary
from ...schemas.layout_names import CATEGORIES, TRAIN, WORKFLOW_FILE
from ...schemas.natural_translation import shared_domains
from ...schemas.parquet import read_footer
from ...schemas.users_layout import POPULARITY, USER_HASH, USERS, UsersLayout, users_problems
from ..frames import arrow_lists
from ..ops.saving import FILES
from ..parquet_files import write_table
from ..preprocess.dataset_writer import (
    INTERACTIONS_PER_FILE,
    INTERACTIONS_PER_GROUP,
    cut,
    write_users_file,
)
from ..preprocess.earlier_histories import HISTORY
from ..preprocess.fitted import FittedWorkflow
from ..preprocess.write_samples import AllUsers, SamplesOfUsers, write_samples
from ..rules import NONE, SampleRules
from .chunk_files import ChunkRows
from .sample_histories import CheckedSamples, Numbers, Samples, UserHistories

CHANNELS = (LABEL, USER_FEATURES, TARGET_ITEM_FEATURES, POSITIVE_HISTORY, NEGATIVE_HISTORY)
"""What rows of samples say enough of to make users' rows of them."""


def users_to_samples(
    dataset: DatasetDirectory, output: Path, reporter: Reporter, *, overwrite: bool = False
) -> dict[str, int]:
    """Write the files that ``preprocess --layout samples`` would have written of the same log.

    ``output`` appears whole or not at all; returns the number of samples of each mapping.
    """
    check_apart(output, [dataset.path])
    with staged_directory(output, overwrite=overwrite, say=reporter.say) as staged:
        rows = write_samples(dataset, staged, reporter)
        _copy_fitted(dataset.path, staged)
    return rows


def _copy_fitted(source: Path, staged: Path) -> None:
    for path in source.iterdir():
        if path.is_dir() and path.name.startswith((CATEGORIES, HISTORY, FILES)):
            copy_directory(path, staged / path.name)
    if (source / WORKFLOW_FILE).is_file():
        shutil.copy(source / WORKFLOW_FILE, staged / WORKFLOW_FILE)


@dataclass(frozen=True)
class SamplesTranscoder:
    """Writes the users of which :func:`users_to_samples` makes the same samples.

    Positives and their histories are the same. Negatives are drawn by a seed: they are the same
    where the seed and the counts of the items are those that they were drawn by.
    """

    dataset: DatasetDirectory
    reporter: Reporter = field(default_factory=Silence)
    seed: int | None = None
    """Of the draws; None for that of the dataset's workflow, or the one that is usual."""

    def transcode(self, output: Path, *, overwrite: bool = False) -> dict[str, int]:
        """Make ``output``, whole or not at all; returns the number of samples of each mapping."""
        source, spec = self.dataset.path, self.dataset.spec
        check_apart(output, [source])
        self._check_channels()
        layout = self._layout()
        if problems := users_problems(_users_spec(spec, layout, []), None):
            raise SpecError(source, problems)
        files = [file for mapping in spec.source_spec for file in self.dataset.files(mapping)]
        total = sum(read_footer(file)[0].num_rows for file in files)
        table = self._item_table()
        of_items = {n: np.full(table.num_rows + 1, -1, np.int64) for n in layout.item_features}
        for name in {*of_items} & {*table.column_names}:
            of_items[name][np.asarray(table[ID])] = np.asarray(table[name])
        user, *others = self.dataset.channels[USER_FEATURES]
        of_users = {n: np.full(self._largest(user) + 1, -1, np.int64) for n in others}
        with self.reporter.phase("reading samples", total) as report:
            known = list(of_users.values()), list(of_items.values())
            samples = Samples(self.dataset, *known, report)
        with self.reporter.phase("comparing histories", total) as report:
            histories = UserHistories(samples, report)
        layout = replace(layout, negatives_per_positive=histories.negatives_per_positive)
        with staged_directory(output, overwrite=overwrite, say=self.reporter.say) as staged:
            _copy_fitted(source, staged)
            completed = self._completed(table, samples, of_items)
            if completed is not table:
                write_table(completed, staged / layout.item_table)
            features = {user: histories.users}
            features |= {name: ids[histories.users] for name, ids in of_users.items()}
            written = _write_histories(histories, features, layout, staged)
            write_documents(staged, _users_spec(spec, layout, written))
            with self.reporter.phase("drawing negatives", total) as report:
                is_same = _have_the_same(DatasetDirectory.open(staged), samples, report)
        self.reporter.say(self._summary(histories, layout, is_same))
        counts = np.bincount(samples.mapping, minlength=len(samples.mappings))
        return dict(zip(samples.mappings, counts.tolist(), strict=True))

    def _check_channels(self) -> None:
        channels = self.dataset.channels
        others = [name for name in channels if channels[name] and name not in CHANNELS]
        if others:
            raise MerlinSimError(
                f"{self.dataset.path}: expected the channels {', '.join(CHANNELS)} alone, of "
                f"which users can be made again. Found {', '.join(others)}. `merlin-sim preprocess "
                "--layout users` makes users with all of them, of the log."
            )
        if not channels.get(USER_FEATURES):
            raise MerlinSimError(
                f"{self.dataset.path}: channel {USER_FEATURES}: expected a feature that tells "
                "users apart, found none."
            )

    @cached_property
    def _rules(self) -> SampleRules:
        path = self.dataset.path
        if not (path / WORKFLOW_FILE).is_file():
            return SampleRules()
        rules = FittedWorkflow.load(path).rules
        if rules.negatives == NONE:
            raise MerlinSimError(
                f"{path / WORKFLOW_FILE}: expected negatives that were drawn, found none: "
                "rows of samples do not say where in a history what was only shown stands. "
                "`merlin-sim preprocess --layout users` makes users of the log."
            )
        return rules

    def _layout(self) -> UsersLayout:
        domains = shared_domains(self.dataset.spec)
        item, *features = (domains[name] for name in self.dataset.channels[TARGET_ITEM_FEATURES])
        rules = self._rules
        return UsersLayout(
            history=item,
            positions={m: (f"{m}_begin", f"{m}_end") for m in self.dataset.spec.source_spec},
            item_table=f"{CATEGORIES}/{item}.parquet",
            item_features=tuple(features),
            negatives=rules.drawn_by,
            seed=rules.seed if self.seed is None else self.seed,
            negatives_not_in_history=rules.negatives_not_in_history,
            user_hash=USER_HASH,
        )

    def _largest(self, name: str) -> int:
        return int(self.dataset.spec.feature_spec[name].cardinality or 0)

    def _item_table(self) -> pa.Table:
        """The dataset's own table of items, or one with their ids alone."""
        path = self.dataset.path / self._layout().item_table
        name = self.dataset.channels[TARGET_ITEM_FEATURES][0]
        ids = np.arange(1, self._largest(name) + 1)
        if not path.is_file():
            return pa.table({ID: ids})
        table = read_vocabulary(path, read_footer(path)[1].names)
        if not np.array_equal(np.sort(np.asarray(table[ID])), ids):
            raise MerlinSimError(f"{path}: column {ID}: expected each of 1 to {len(ids)} once.")
        return table

    def _completed(
        self, table: pa.Table, samples: Samples, features: dict[str, Numbers]
    ) -> pa.Table:
        """Add to the table of items what it lacks: counts, and features' ids as rows have them."""
        ids = np.asarray(table[ID])
        if COUNT not in table.column_names:
            trains = samples.mapping == samples.mappings.index(TRAIN)
            clicked = samples.target[(samples.label == 1) & trains]
            counts = np.bincount(clicked, minlength=len(ids) + 1)
            table = table.append_column(COUNT, pa.array(counts[ids]))
        is_drawn = np.asarray(table[COUNT]) > 0
        if self._rules.drawn_by != POPULARITY:
            is_drawn = np.ones_like(is_drawn)
        for name, by_item in features.items():
            if name in table.column_names:
                continue
            unknown = by_item[ids] < 0
            if (unknown & is_drawn).any():
                raise MerlinSimError(
                    f"{self.dataset.path}: expected the {name} of item {ids[unknown & is_drawn][0]}"
                    ", of which negatives are drawn. No row has it, nor has a table of items."
                )
            if unknown.any():
                self.reporter.say(
                    f"{unknown.sum():,} items are in no row: they get {name} 1, and no sample has "
                    "them."
                )
            table = table.append_column(name, pa.array(np.maximum(by_item[ids], 1)))
        return table

    def _summary(self, histories: UserHistories, layout: UsersLayout, is_same: bool) -> str:
        start = f"{len(histories.users):,} users. "
        if is_same:
            return f"{start}Their samples are those of {self.dataset.path}, negatives too."
        return (
            f"{start}Positives and their histories are those of {self.dataset.path}. Negatives are "
            f"drawn anew, with the seed {layout.seed}: another seed, other counts of items or "
            "longer histories decided those that are stored."
        )


def _users_spec(spec: FeatureSpec, layout: UsersLayout, files: list[str]) -> FeatureSpec:
    sources = {
        mapping: (Chunk(USERS, chunk.features, tuple(files)),)
        for mapping, (chunk,) in spec.source_spec.items()
    }
    return replace(spec, source_spec=sources, metadata={**spec.metadata, USERS: layout.to_dict()})


def _write_histories(
    histories: UserHistories, features: dict[str, Numbers], layout: UsersLayout, directory: Path
) -> list[str]:
    (directory / USERS).mkdir()
    items, starts = histories.items, histories.starts
    kind = np.int32 if items.max() < 2**31 else np.int64
    single = dict(features)
    for mapping, ends in histories.ranges().items():
        single |= dict(zip(layout.positions[mapping], ends, strict=True))
    # Rows have no keys, and one user at most has no id.
    single[USER_HASH] = np.where(histories.users > 0, 0, WITHOUT_ID)

    def table(first: int, stop: int) -> pa.Table:
        columns = {name: pa.array(values[first:stop]) for name, values in single.items()}
        history = items[starts[first] : starts[stop]].astype(kind)
        offsets = starts[first : stop + 1] - starts[first]
        return pa.table({**columns, layout.history: arrow_lists(history, offsets)})

    files = []
    for number, (first, stop) in enumerate(cut(starts, INTERACTIONS_PER_FILE)):
        files.append(f"{USERS}/part.{number}.parquet")
        groups = cut(starts[first : stop + 1], INTERACTIONS_PER_GROUP)
        tables = (table(first + begin, first + end) for begin, end in groups)
        write_users_file(directory / files[-1], table(0, 0).schema, tables)
    return files


def _have_the_same(users: DatasetDirectory, samples: Samples, report: Report) -> bool:
    """Return whether the samples of users are the rows, the negatives among them."""
    all_users = AllUsers(users)
    for number, mapping in enumerate(samples.mappings):
        of_mapping, made = SamplesOfUsers(all_users, mapping), [np.empty(0, np.uint64)]
        for index, file in enumerate(of_mapping.files):
            rows = ChunkRows(of_mapping.table(index), users.path / file, 1)
            made.append(CheckedSamples(rows, users.spec).hashes()[2])
            report(rows.table.num_rows, rows.table.num_rows)
        stored = samples.whole[samples.mapping == number]
        if not np.array_equal(np.sort(np.concatenate(made)), np.sort(stored)):
            return False
    return True
