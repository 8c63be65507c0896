"""All histories of ids, one row a user, in files that are mapped into memory, not read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...foundation.atomic_write import write_array
from ...schemas.users_layout import JOINS, POSITIVE, SAMPLE
from ..engine.backend import lists_of_arrow
from ..features.event_counts import write_events
from ..features.item_values import ItemValues
from ..vocabularies.vocabulary import Vocabularies
from .behaviour_columns import AS_OF, SECONDS, BehaviourColumns
from .interaction_roles import (
    SamplePlaces,
    first_of_moments,
    first_with_enough_taken,
    sample_places,
)
from .positions import (
    TRAIN,
    last_mappings,
    part_ends,
    part_positions,
    sample_positions,
)
from .split import PART, Split

ITEMS = "items"
PLACES = "places"
BEFORE = "before"
POSITIVES = "positives"
SAMPLE_ENDS = "sample ends"
TAKEN_ENDS = "taken ends"
FIRSTS = "firsts of their time"
BEGINS = "begins"
ENDS = "ends"
PART_ENDS = "part ends"
ROLES = "roles"


@dataclass(frozen=True)
class Histories:
    """A directory of raw int64 arrays; travels between processes as a path.

    A history of a log with labels or behaviours is all that the user was shown and did.
    """

    directory: Path
    columns: BehaviourColumns

    def column(self, name: str) -> npt.NDArray[np.int64]:
        """A user's column, by history; of one that changes the value of the last interaction."""
        if name not in self.columns.beside_items:
            return self._map(f"user.{name}")
        found = np.zeros(len(self.offsets) - 1, np.int64)
        has_any = np.diff(self.offsets) > 0
        found[has_any] = self.beside(name)[self.offsets[1:][has_any] - 1]
        return found

    def beside(self, name: str) -> npt.NDArray[np.int64]:
        """What stands beside the items: keys of users and contexts, and times."""
        return self._map(f"beside.{name}")

    def numbers(self, name: str) -> npt.NDArray[np.float64]:
        """A user's number, by history; an interaction's, beside the items."""
        return self._map(f"number.{name}", np.float64)

    @property
    def items(self) -> npt.NDArray[np.int64]:
        """The items of all histories, one after the other."""
        return self._map(ITEMS)

    @property
    def roles(self) -> npt.NDArray[np.int8]:
        """Of a log with roles: what part each interaction plays."""
        return self._map(ROLES, np.int8)

    @property
    def firsts(self) -> npt.NDArray[np.int64]:
        """The place of the first interaction of each one's own time, where it counts."""
        return self._map(FIRSTS)

    @property
    def samples(self) -> SamplePlaces:
        """Of a log with roles: which interactions are samples."""
        return SamplePlaces(
            self._map(PLACES),
            self._map(BEFORE),
            self._map(POSITIVES),
            _begins(self._map(SAMPLE_ENDS)),
            _begins(self._map(TAKEN_ENDS)),
        )

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Where each history begins, and where the last one ends."""
        return _begins(self._map(ENDS))

    def positions(self, mapping: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where the samples of a mapping begin and end in each history."""
        begins, ends = (self._map(f"{mapping}.{name}") for name in (BEGINS, ENDS))
        return begins, ends

    def _map(self, name: str, dtype: Any = np.int64) -> npt.NDArray[Any]:
        path = self.directory / name
        if path.stat().st_size == 0:
            return np.empty(0, dtype)
        return np.memmap(path, dtype, "r")

    def write_events(
        self, directory: Path, vocabularies: Vocabularies, values: ItemValues | None = None
    ) -> None:
        """Write, for counts and shares by time, the events of each encoded key."""
        items, seconds = self.items, self.numbers(SECONDS)
        taken = np.ones(len(items), np.int64)
        if self.columns.indexes_samples:  # encodings: every interaction is a sample
            taken = np.diff(self.samples.positives)
        table = vocabularies.items(self.columns.item)
        for encoding in self.columns.features.encodings:
            name, ids = encoding.column, items
            if name != self.columns.item:
                ids = table.feature(name)
                if values is not None and values.changes(name):
                    ids = values.at(name, items, self.beside(AS_OF), ids)
                else:
                    ids = ids[items]
            write_events(directory / f"{name}.parquet", ids, seconds, taken)

    def choose_positions(
        self, least_before: int, split: Split | None = None, validates: bool = False
    ) -> None:
        """Say which interactions are samples; see ``sample_positions`` and ``part_positions``."""
        lengths, least = np.diff(self.offsets), least_before
        if self.columns.indexes_samples:
            samples = self.samples
            lengths = np.diff(samples.offsets)
            least = first_with_enough_taken(samples, least_before)
        if split is not None:
            before: Any = np.zeros_like(lengths)
            for mapping in split.mappings:
                ends = self._map(f"{mapping}.{PART_ENDS}")
                self.write_positions(mapping, *part_positions(before, ends, least))
                before = ends
            return
        for mapping in last_mappings(validates):
            found = sample_positions(lengths, mapping, least, validates)
            self.write_positions(mapping, *found)

    def write_positions(
        self, mapping: str, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
    ) -> None:
        """Keep the ranges of a mapping's samples."""
        for name, values in ((BEGINS, begins), (ENDS, ends)):
            with open(self.directory / f"{mapping}.{name}", "wb") as file:
                write_array(file, values.astype(np.int64))

    def count_trained(self, items: int, split: Split | None) -> npt.NDArray[np.int64]:
        """How often each item, by id from 0, was taken in the rows that train.

        Without a split these are all but the samples that are held out at each user's end.

        Args:
            items: The last id.
            split: Says which interactions train.
        """
        ids = self.items
        if split is not None:
            trains = self._map(PART, np.int8) == 0
        else:
            trains = np.ones(len(ids), np.bool_)
            trains[self._held_out()] = False
        if self.columns.roles:
            trains &= (self.roles & (JOINS | POSITIVE)) > 0
        return np.bincount(ids[trains], minlength=items + 1)

    def _held_out(self) -> npt.NDArray[np.int64]:
        """The places of the samples behind the last one that trains, of all users."""
        _, ends = self.positions(TRAIN)
        offsets = self.samples.offsets if self.columns.indexes_samples else self.offsets
        counts = np.diff(offsets) - ends
        numbers = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        found: npt.NDArray[np.int64] = np.repeat(offsets[:-1] + ends, counts) + numbers
        if self.columns.indexes_samples:
            found = self.samples.places[found]
        return found

    def places_of_samples(self, mapping: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Whose each sample of a mapping is, and where it stands among all interactions."""
        begins, ends = self.positions(mapping)
        starts = self.samples.offsets if self.columns.indexes_samples else self.offsets
        rows = np.repeat(np.arange(len(begins)), ends - begins)
        firsts = np.repeat(begins - np.cumsum(ends - begins) + (ends - begins), ends - begins)
        places = starts[rows] + firsts + np.arange(len(rows))
        return rows, self.samples.places[places] if self.columns.indexes_samples else places

    def count_outdated(self, mapping: str, values: ItemValues | None) -> int:
        """Count the samples whose user or item got another value later."""
        columns = self.columns
        rows, places = self.places_of_samples(mapping)
        lasts = self.offsets[rows + 1] - 1
        is_outdated = np.zeros(len(rows), bool)
        of_users = [self.beside(name) for name in columns.changing_keys]
        for stored in (*of_users, *(self.numbers(name) for name in columns.changing_numbers)):
            is_outdated |= stored[places] != stored[lasts]
        if values is not None:
            items, times = self.items[places], self.beside(AS_OF)[places]
            for name in (*columns.item_features, *columns.of_items):
                if values.changes(name):
                    is_outdated |= values.is_outdated(name, items, times)
        return int(is_outdated.sum())

    def count_samples(self, mapping: str, twins: int) -> int:
        """How many rows a mapping has: one for each position, and the twins of the positives."""
        begins, ends = self.positions(mapping)
        rows = positives = self.count_positions(mapping)
        if self.columns.indexes_samples:
            samples = self.samples
            starts = samples.offsets[:-1]
            counted = samples.positives
            positives = int((counted[starts + ends] - counted[starts + begins]).sum())
        return rows + twins * positives

    def count_positions(self, mapping: str) -> int:
        """How many interactions a mapping predicts."""
        begins, ends = self.positions(mapping)
        return int((ends - begins).sum())

    def gather(self, files: Iterable[Path], split: Split | None = None) -> None:
        """Append tables of histories, as :func:`~.encode_users.encode_all` writes them."""
        self.fill((_read(path) for path in files), split)

    def fill(self, tables: Iterable[pa.Table], split: Split | None = None) -> None:
        """Append tables with the user's columns and the lists of the items, roles and parts."""
        self.directory.mkdir(parents=True)
        names, columns = self.columns.users, self.columns
        last = 0
        files = [ITEMS, ENDS, ROLES]
        files += [FIRSTS, PLACES, BEFORE, POSITIVES, SAMPLE_ENDS, TAKEN_ENDS, PART]
        beside = (*columns.beside_items, *columns.times)
        names = tuple(name for name in names if name not in beside)
        files += [f"user.{name}" for name in names] + [f"beside.{name}" for name in beside]
        files += [f"number.{name}" for name in (*columns.of_users, *columns.of_interactions)]
        writers = {name: open(self.directory / name, "wb") for name in files}
        mappings = () if split is None else split.mappings
        part_files = [open(self.directory / f"{name}.{PART_ENDS}", "wb") for name in mappings]
        appended = _Appended(writers)
        try:
            for table in tables:
                for name in names:
                    write_array(writers[f"user.{name}"], np.asarray(table[name]).astype(np.int64))
                for name in columns.of_users:
                    write_array(
                        writers[f"number.{name}"], np.asarray(table[name]).astype(np.float64)
                    )
                for name in beside:
                    ids, _ = lists_of_arrow(table[name].combine_chunks())
                    write_array(writers[f"beside.{name}"], ids)
                for name in columns.of_interactions:
                    numbers, _ = lists_of_arrow(table[name].combine_chunks(), "float64")
                    write_array(writers[f"number.{name}"], numbers)
                values, offsets = lists_of_arrow(table[self.columns.item].combine_chunks())
                write_array(writers[ITEMS], values)
                write_array(writers[ENDS], offsets[1:] + last)
                parted, part_offsets = slice(None), offsets
                if columns.indexes_samples:
                    roles: Any = np.full(len(values), JOINS | SAMPLE | POSITIVE)
                    for name in columns.roles:
                        stored, _ = lists_of_arrow(table[name].combine_chunks())
                        roles = columns.roles_of(stored)
                    moments = None
                    for moment in columns.moments:
                        moments, _ = lists_of_arrow(table[moment].combine_chunks())
                        firsts = first_of_moments(moments, offsets)
                        write_array(writers[FIRSTS], firsts + last)
                    write_array(writers[ROLES], roles.astype(np.int8))
                    samples = sample_places(roles, offsets, moments)
                    appended.add(samples, last)
                    parted, part_offsets = samples.places, samples.offsets
                if split is not None:
                    parts, _ = lists_of_arrow(table[PART].combine_chunks())
                    write_array(writers[PART], parts.astype(np.int8))
                for part, file in enumerate(part_files):
                    write_array(file, part_ends(parts[parted], part_offsets, part))
                last += int(offsets[-1])
            appended.close()
        finally:
            for writer in (*writers.values(), *part_files):
                writer.close()


class _Appended:
    """Writes the samples of one table after the other, counted through all of them."""

    def __init__(self, writers: Mapping[str, BinaryIO]) -> None:
        self.writers = writers
        self.samples = self.taken = self.positives = 0

    def add(self, found: SamplePlaces, places_before: int) -> None:
        """Append those of a table, before which so many interactions stand."""
        for name, values in (
            (PLACES, found.places + places_before),
            (BEFORE, found.before + self.taken),
            (POSITIVES, found.positives[:-1] + self.positives),
            (SAMPLE_ENDS, found.offsets[1:] + self.samples),
            (TAKEN_ENDS, found.begins[1:] + self.taken),
        ):
            write_array(self.writers[name], values.astype(np.int64))
        self.samples += int(found.offsets[-1])
        self.taken += int(found.begins[-1])
        self.positives += int(found.positives[-1])

    def close(self) -> None:
        """Append what stands before the end."""
        write_array(self.writers[POSITIVES], np.array([self.positives]))


def _begins(ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], ends])


def _read(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()
