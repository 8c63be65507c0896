"""A dataset with one row per sample becomes the one with one row per user that it was made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...foundation.exceptions import MerlinSimError, SpecError
from ...foundation.progress import Narrator, Report, Silence
from ...foundation.staging import check_apart, staged_directory
from ...schemas.channels import (
    LABEL,
    NEGATIVE_HISTORY,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    USER_FEATURES,
)
from ...schemas.dataset import DatasetDirectory, write_documents
from ...schemas.item_table import COUNT, ID, ItemTable, read_vocabulary
from ...schemas.parquet.footer import read_footer
from ...schemas.specs.feature_spec import Chunk, FeatureSpec
from ...schemas.translation.natural_translation import shared_domains
from ...schemas.users_layout import POPULARITY, USERS, UsersLayout, users_problems
from ..behaviour.fitted import WORKFLOW_FILE, FittedWorkflow
from ..behaviour.positions import TRAIN
from ..behaviour.rules import NONE, SampleRules
from ..behaviour.write_samples import AllUsers, SamplesOfUsers
from ..behaviour.write_users import INTERACTIONS_PER_FILE, INTERACTIONS_PER_GROUP, ZSTD_LEVEL, cut
from ..engine.backend import arrow_lists
from ..vocabularies.vocabulary import CATEGORIES
from .chunk_files import count_chunk_rows
from .chunk_rows import ChunkRows
from .sample_chains import SampleChains
from .sample_keys import Hashes, ItemFeatures, Numbers, SampleBatch, SampleRows, batches, read_rows
from .users_to_samples import copy_fitted

CHANNELS = (LABEL, USER_FEATURES, TARGET_ITEM_FEATURES, POSITIVE_HISTORY, NEGATIVE_HISTORY)
"""What rows of samples tell enough of to make users' rows of them."""


@dataclass(frozen=True)
class SamplesTranscoder:
    """Writes the users of which ``UsersTranscoder`` makes the same samples.

    Positives and their histories are the same. Negatives are drawn by a seed: they are the same
    where the seed and the counts of the items are those that they were drawn by.
    """

    dataset: DatasetDirectory
    narrator: Narrator = field(default_factory=Silence)
    seed: int | None = None
    """Of the draws; None for that of the dataset's workflow, or the one that is usual."""

    def transcode(self, output: Path, *, overwrite: bool = False) -> dict[str, int]:
        """Make the dataset directory ``output``; it appears whole or not at all.

        Returns:
            Mapping -> the number of its samples.

        Raises:
            MerlinSimError: Where the samples do not follow from users' rows, with file and row.
        """
        source, spec = self.dataset.path, self.dataset.spec
        check_apart(output, [source])
        self._check_channels()
        layout = self._layout(1)
        total = sum(count_chunk_rows(source, c, spec.feature_spec) for (c,) in self._chunks)
        known = self._known_features(source / layout.item_table, layout)
        features = ItemFeatures(spec, known)
        with self.narrator.phase("reading samples", total) as report:
            rows = read_rows(self.dataset, features, report)
        chains = SampleChains(rows, self._longest)
        layout = self._layout(chains.negatives_per_positive)
        problems = users_problems(_users_spec(spec, layout, []), None)
        if problems:
            raise SpecError(source, problems)
        with self.narrator.phase("chaining histories", total) as report:
            items = self._items(chains)
            self._compare(chains, items, report)
        with staged_directory(output, overwrite=overwrite, say=self.narrator.say) as staged:
            copy_fitted(source, staged)
            self._write_items(staged / layout.item_table, layout, rows, features)
            files = write_rows(chains, items, layout, staged)
            write_documents(staged, _users_spec(spec, layout, files))
            with self.narrator.phase("drawing negatives", total) as report:
                is_same = _are_those(DatasetDirectory.open(staged), rows, report)
        self.narrator.say(self._told(chains, layout, is_same))
        counts = np.bincount(rows.mapping, minlength=len(rows.mappings))
        return dict(zip(rows.mappings, counts.tolist(), strict=True))

    @property
    def _chunks(self) -> list[tuple[Chunk, ...]]:
        for mapping in self.dataset.spec.source_spec:
            self.dataset.files(mapping)  # refuses what is not one chunk of parquet
        return list(self.dataset.spec.source_spec.values())

    @property
    def _longest(self) -> int:
        name = self.dataset.channels[POSITIVE_HISTORY][0]
        (longest,) = self.dataset.spec.feature_spec[name].dimensions or (0,)
        return longest

    @cached_property
    def _rules(self) -> SampleRules:
        path = self.dataset.path
        if not (path / WORKFLOW_FILE).is_file():
            return SampleRules()
        rules = FittedWorkflow.load(path).rules
        if rules.negatives == NONE:
            raise MerlinSimError(
                f"{path / WORKFLOW_FILE}: rules: expected negatives that were drawn, found none: "
                "rows of samples do not tell where in a history what was only shown stands. "
                "`merlin-sim preprocess --layout users` makes users of the log."
            )
        return rules

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

    def _layout(self, negatives: int) -> UsersLayout:
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
            negatives_per_positive=negatives,
            negatives_not_in_history=rules.negatives_not_in_history,
        )

    def _known_features(self, path: Path, layout: UsersLayout) -> list[Numbers | None]:
        """What the dataset's own table of items says."""
        if not path.is_file():
            return [None for _ in layout.item_features]
        names, size = read_footer(path)[1].names, self._items_of_vocabulary
        ids = np.sort(np.asarray(read_vocabulary(path, [ID])[ID]))
        if not np.array_equal(ids, np.arange(1, size + 1)):
            raise MerlinSimError(f"{path}: column {ID}: expected each of 1 to {size} once.")
        table = ItemTable(path)
        return [table.feature(name) if name in names else None for name in layout.item_features]

    @property
    def _items_of_vocabulary(self) -> int:
        name = self.dataset.channels[TARGET_ITEM_FEATURES][0]
        return int(self.dataset.spec.feature_spec[name].cardinality or 0)

    def _items(self, chains: SampleChains) -> Numbers:
        """All users' whole histories, one after the other."""
        rows, place, lacking = chains.rows, chains.place, chains.lacking
        found = np.zeros(chains.starts[-1], np.int64)
        found[place[chains.positives]] = rows.target[chains.positives]
        for first, batch, _ in batches(self.dataset):
            items, offsets = batch.seen
            some = np.flatnonzero(lacking[first : first + len(offsets) - 1])
            counts = lacking[first + some]
            found[_before(place[first + some], counts)] = items[_before(offsets[1:][some], counts)]
        return found

    def _compare(self, chains: SampleChains, items: Numbers, report: Report) -> None:
        """Look whether each stored history is what the users' rows say."""
        of_positives = chains.place[chains.positives]
        for first, batch, _ in batches(self.dataset):
            stored, offsets = batch.seen
            lengths = np.diff(offsets)
            places = _before(chains.place[first : first + len(lengths)], lengths)
            wrong = np.flatnonzero(items[places] != stored)
            if len(wrong):
                row = int(np.searchsorted(offsets, wrong[0], side="right")) - 1
                other = np.searchsorted(of_positives, places[wrong[0]])
                chains.refuse_other(first + row, int(chains.positives[other]))
            report(len(lengths), len(lengths))

    def _write_items(
        self, path: Path, layout: UsersLayout, rows: SampleRows, features: ItemFeatures
    ) -> None:
        """Write the table of items, where the dataset has none with all that is needed."""
        size = self._items_of_vocabulary
        table = pa.table({ID: np.arange(1, size + 1)})
        if path.is_file():
            table = read_vocabulary(path, read_footer(path)[1].names)
        lacking = [
            name for name in (COUNT, *layout.item_features) if name not in table.column_names
        ]
        if not lacking:
            return
        ids = np.asarray(table[ID])
        if COUNT in lacking:
            trains = rows.mapping == rows.mappings.index(TRAIN)
            taken = rows.target[(rows.label == 1) & trains]
            counts = pa.array(np.bincount(taken, minlength=size + 1)[ids])
            table = table.append_column(COUNT, counts)
        for name, by_item in zip(layout.item_features, features.by_item, strict=True):
            if name in lacking:
                table = table.append_column(name, pa.array(self._complete(name, by_item, table)))
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table, path, compression="zstd")

    def _complete(self, name: str, by_item: Numbers, table: pa.Table) -> Numbers:
        """The ids of a feature, 1 for items that no row has: they are not drawn."""
        ids = np.asarray(table[ID])
        unknown = ids[by_item[ids] == 0]
        is_drawn = self._rules.drawn_by != POPULARITY
        drawn = ids[(by_item[ids] == 0) & (is_drawn | (np.asarray(table[COUNT]) > 0))]
        if len(drawn):
            raise MerlinSimError(
                f"{self.dataset.path}: expected the {name} of item {drawn[0]}, of which negatives "
                "are drawn. No row has it, nor has a table of items."
            )
        if len(unknown):
            self.narrator.say(
                f"{len(unknown):,} items are in no row: they get {name} 1, and no sample has them."
            )
        found: Numbers = np.maximum(by_item[ids], 1)
        return found

    def _told(self, chains: SampleChains, layout: UsersLayout, is_same: bool) -> str:
        start = f"{len(chains.users):,} users. "
        if is_same:
            return f"{start}Their samples are those of {self.dataset.path}, negatives too."
        return (
            f"{start}Positives and their histories are those of {self.dataset.path}. Negatives are "
            f"drawn anew, with the seed {layout.seed}: another seed, other counts of items or "
            "longer histories decided those that are stored."
        )


def _before(ends: Numbers, counts: Numbers) -> Numbers:
    """So many places before each end, in their order.

    >>> _before(np.array([3, 9]), np.array([1, 2]))
    array([2, 7, 8])
    """
    first: Numbers = np.repeat(ends - np.cumsum(counts), counts)
    return first + np.arange(len(first))


def _users_spec(spec: FeatureSpec, layout: UsersLayout, files: list[str]) -> FeatureSpec:
    sources = {
        mapping: (Chunk(USERS, chunk.features, tuple(files)),)
        for mapping, (chunk,) in spec.source_spec.items()
    }
    return replace(spec, source_spec=sources, metadata={**spec.metadata, USERS: layout.to_dict()})


def write_rows(
    chains: SampleChains, items: Numbers, layout: UsersLayout, directory: Path
) -> list[str]:
    """Write all users, in the order of their ids; returns the files."""
    (directory / USERS).mkdir()
    starts, kind = chains.starts, np.int32 if items.max() < 2**31 else np.int64
    single = dict(chains.features)
    for mapping, names in layout.positions.items():
        single |= dict(zip(names, chains.ranges[mapping], strict=True))

    def table(first: int, stop: int) -> pa.Table:
        columns = {name: pa.array(values[first:stop]) for name, values in single.items()}
        history = items[starts[first] : starts[stop]].astype(kind)
        places = starts[first : stop + 1] - starts[first]
        return pa.table({**columns, layout.history: arrow_lists(history, places)})

    files = []
    for number, (first, stop) in enumerate(cut(starts, INTERACTIONS_PER_FILE)):
        files.append(f"{USERS}/part.{number}.parquet")
        with pq.ParquetWriter(
            directory / files[-1], table(0, 0).schema, compression="zstd",
            compression_level=ZSTD_LEVEL, use_dictionary=False, write_statistics=False,
        ) as writer:  # fmt: skip
            for begin, end in cut(starts[first : stop + 1], INTERACTIONS_PER_GROUP):
                some = table(first + begin, first + end)
                writer.write_table(some, row_group_size=max(1, some.num_rows))
    return files


def _are_those(users: DatasetDirectory, rows: SampleRows, report: Report) -> bool:
    """Tell whether the samples of users are the rows, the negatives among them."""
    all_users = AllUsers(users)
    for number, mapping in enumerate(rows.mappings):
        stored = np.sort(rows.whole[rows.mapping == number])
        made = [np.empty(0, np.uint64), *_hashes(all_users, mapping, report)]
        if not np.array_equal(np.sort(np.concatenate(made)), stored):
            return False
    return True


def _hashes(users: AllUsers, mapping: str, report: Report) -> Iterator[Hashes]:
    samples = SamplesOfUsers(users, mapping)
    for number, file in enumerate(samples.files):
        rows = ChunkRows(samples.table(number), users.dataset.path / file, 1)
        yield SampleBatch(rows, users.dataset.spec).hashes()[2]
        report(rows.table.num_rows, rows.table.num_rows)
