"""All histories of ids, one row a user, in files that are mapped into memory, not read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...sampling.positions import TEST, TRAIN, part_ends, part_positions, sample_positions
from ...sampling.roles import (
    JOINS,
    SamplePlaces,
    first_of_moments,
    first_with_enough_taken,
    sample_places,
)
from ..engine.backend import lists_of_arrow
from ..features.event_counts import EventCounts
from ..features.item_values import ItemValues
from ..vocabularies.vocabulary import Vocabularies
from .behaviour_columns import AS_OF, SECONDS, BehaviourColumns
from .split import PART, Split

ITEMS = "items"
TAKEN = "taken"
TAKEN_SECONDS = "taken seconds"
PLACES = "places"
BEFORE = "before"
POSITIVES = "positives"
SAMPLE_ENDS = "sample ends"
TAKEN_ENDS = "taken ends"
FIRSTS = "firsts of their time"
BEGINS = "begins"
ENDS = "ends"
PART_ENDS = "part ends"


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
    def taken_seconds(self) -> npt.NDArray[np.float64]:
        """Of a log with roles and time intervals: the times of the items that were taken."""
        return self._map(TAKEN_SECONDS, np.float64)

    @property
    def items(self) -> npt.NDArray[np.int64]:
        """The items of all histories, one after the other."""
        return self._map(ITEMS)

    @property
    def taken(self) -> npt.NDArray[np.int64]:
        """Of a log with roles: those of the items that join the history."""
        return self._map(TAKEN)

    @property
    def firsts(self) -> npt.NDArray[np.int64]:
        """Of a log with labels: the place of the first interaction of each one's own time."""
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
        """Keep, for counts and shares by time, the events of each encoded key."""
        items, seconds = self.items, self.numbers(SECONDS)
        taken = np.ones(len(items), np.int64)
        if self.columns.roles:  # labels: every interaction is a sample
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
            EventCounts(directory / name).write(ids, seconds, taken, vocabularies.size(name))

    def choose_positions(self, least_before: int, split: Split | None = None) -> None:
        """Say which interactions are samples; see ``sample_positions`` and ``part_positions``."""
        lengths, least = np.diff(self.offsets), least_before
        if self.columns.roles:
            samples = self.samples
            lengths = np.diff(samples.offsets)
            least = first_with_enough_taken(samples, least_before, np)
        if split is not None:
            before: Any = np.zeros_like(lengths)
            for mapping in split.mappings:
                ends = self._map(f"{mapping}.{PART_ENDS}")
                self.write_positions(mapping, *part_positions(before, ends, least, np))
                before = ends
            return
        for mapping in (TRAIN, TEST):
            self.write_positions(mapping, *sample_positions(lengths, mapping, least, np))

    def write_positions(
        self, mapping: str, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
    ) -> None:
        """Keep the ranges of a mapping's samples."""
        for name, values in ((BEGINS, begins), (ENDS, ends)):
            values.astype(np.int64).tofile(self.directory / f"{mapping}.{name}")

    def places_of_samples(self, mapping: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Whose each sample of a mapping is, and where it stands among all interactions."""
        begins, ends = self.positions(mapping)
        starts = self.samples.offsets if self.columns.roles else self.offsets
        rows = np.repeat(np.arange(len(begins)), ends - begins)
        firsts = np.repeat(begins - np.cumsum(ends - begins) + (ends - begins), ends - begins)
        places = starts[rows] + firsts + np.arange(len(rows))
        return rows, self.samples.places[places] if self.columns.roles else places

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
        rows = positives = int((ends - begins).sum())
        if self.columns.roles:
            samples = self.samples
            starts = samples.offsets[:-1]
            counted = samples.positives
            positives = int((counted[starts + ends] - counted[starts + begins]).sum())
        return rows + twins * positives

    def gather(self, files: Iterable[Path], split: Split | None = None) -> None:
        """Append tables of histories, as :func:`~.encode_and_sample.encode_all` writes them."""
        self.fill((_read(path) for path in files), split)

    def fill(self, tables: Iterable[pa.Table], split: Split | None = None) -> None:
        """Append tables with the user's columns and the lists of the items, roles and parts."""
        self.directory.mkdir(parents=True)
        names, columns = self.columns.users, self.columns
        last = 0
        files = [ITEMS, ENDS, TAKEN, TAKEN_SECONDS]
        files += [FIRSTS, PLACES, BEFORE, POSITIVES, SAMPLE_ENDS, TAKEN_ENDS]
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
                    np.asarray(table[name]).astype(np.int64).tofile(writers[f"user.{name}"])
                for name in columns.of_users:
                    np.asarray(table[name]).astype(np.float64).tofile(writers[f"number.{name}"])
                for name in beside:
                    ids, _ = lists_of_arrow(table[name].combine_chunks())
                    ids.tofile(writers[f"beside.{name}"])
                numbers = {}
                for name in columns.of_interactions:
                    numbers[name], _ = lists_of_arrow(table[name].combine_chunks(), "float64")
                    numbers[name].tofile(writers[f"number.{name}"])
                values, offsets = lists_of_arrow(table[self.columns.item].combine_chunks())
                values.tofile(writers[ITEMS])
                (offsets[1:] + last).tofile(writers[ENDS])
                parted, part_offsets = slice(None), offsets
                for name in self.columns.roles:
                    stored, _ = lists_of_arrow(table[name].combine_chunks())
                    roles = columns.roles_of(stored)
                    moments = None
                    for moment in columns.moments:
                        moments, _ = lists_of_arrow(table[moment].combine_chunks())
                        firsts = first_of_moments(moments, offsets, np)
                        (firsts + last).tofile(writers[FIRSTS])
                    samples = sample_places(roles, offsets, np, moments)
                    appended.add(samples, last)
                    joins = (roles & JOINS) > 0
                    values[joins].tofile(writers[TAKEN])
                    if SECONDS in numbers:
                        numbers[SECONDS][joins].tofile(writers[TAKEN_SECONDS])
                    parted, part_offsets = samples.places, samples.offsets
                for part, file in enumerate(part_files):
                    parts, _ = lists_of_arrow(table[PART].combine_chunks())
                    part_ends(parts[parted], part_offsets, part, np).tofile(file)
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
            values.astype(np.int64).tofile(self.writers[name])
        self.samples += int(found.offsets[-1])
        self.taken += int(found.begins[-1])
        self.positives += int(found.positives[-1])

    def close(self) -> None:
        """Append what stands before the end."""
        np.array([self.positives]).tofile(self.writers[POSITIVES])


def _begins(ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], ends])


def _read(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()
