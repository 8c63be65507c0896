"""The rows of a dataset of samples as numbers: whose each is, and a hash of what it has seen."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...foundation.exceptions import MerlinSimError
from ...foundation.hashing import GOLDEN, mix_arrays
from ...foundation.progress import Report
from ...schemas.channels import (
    LABEL,
    NEGATIVE_HISTORY,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    USER_FEATURES,
)
from ...schemas.dataset import DatasetDirectory
from ...schemas.specs.feature_spec import FeatureSpec
from .chunk_files import read_chunk
from .chunk_rows import ChunkRows

Numbers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
HISTORIES = (POSITIVE_HISTORY, NEGATIVE_HISTORY)
COLUMNS = ("mapping", "label", "target", "length", "seen", "following", "whole")
"""The fields of :class:`SampleRows` that a batch gives, in this order."""


@dataclass(frozen=True)
class SampleBatch:
    """Some rows of samples, checked: ids that may be, histories without padding."""

    rows: ChunkRows
    spec: FeatureSpec

    @cached_property
    def labels(self) -> Numbers:
        """[rows] 0 or 1."""
        (name,) = self.spec.channel_spec[LABEL]
        values = np.asarray(self.rows.table[name])
        self._refuse(name, (values != 0) & (values != 1), values, "0 or 1")
        return values.astype(np.int64)

    @cached_property
    def users(self) -> dict[str, Numbers]:
        """[rows] By user feature, its ids."""
        return {name: self._single(name, 0) for name in self.spec.channel_spec[USER_FEATURES]}

    @cached_property
    def targets(self) -> list[Numbers]:
        """[rows] The ids of the target item, and of each of its features."""
        return [self._single(name, 1) for name in self.spec.channel_spec[TARGET_ITEM_FEATURES]]

    @cached_property
    def histories(self) -> dict[str, tuple[list[Numbers], Numbers]]:
        """By channel, [items] the ids of the items and of each feature; [rows + 1] offsets."""
        channels = self.spec.channel_spec
        return {channel: self._history(channels.get(channel, ())) for channel in HISTORIES}

    @property
    def seen(self) -> tuple[Numbers, Numbers]:
        """[items] the items of the positive histories; [rows + 1] offsets."""
        values, offsets = self.histories[POSITIVE_HISTORY]
        return values[0], offsets

    def _single(self, name: str, least: int) -> Numbers:
        values = np.asarray(self.rows.table[name]).astype(np.int64)
        most = int(self.spec.feature_spec[name].cardinality or 0)
        self._refuse(
            name, (values < least) | (values > most), values, f"an id of {least} to {most}"
        )
        return values

    def _history(self, names: tuple[str, ...]) -> tuple[list[Numbers], Numbers]:
        count = self.rows.table.num_rows
        if not names:
            return [np.empty(0, np.int64)], np.zeros(count + 1, np.int64)
        columns = [self.rows.table[name].combine_chunks() for name in names]
        lengths = np.diff(np.asarray(columns[0].offsets))
        owner = np.repeat(np.arange(count), lengths)
        real = np.asarray(columns[0].flatten()) > 0
        found = []
        for name, column in zip(names, columns, strict=True):
            of_column = np.diff(np.asarray(column.offsets))
            self._refuse(name, of_column != lengths, of_column, f"as many values as {names[0]} has")
            values = np.asarray(column.flatten()).astype(np.int64)
            most = int(self.spec.feature_spec[name].cardinality or 0)
            least = np.where(real, 1, 0)
            wrong = np.flatnonzero((values < least) | (values > most))
            if len(wrong):
                what = f"an id of 1 to {most} for each item, and 0 for padding"
                self.refuse(
                    int(owner[wrong[0]]), f"{name}: expected {what}, found {values[wrong[0]]}."
                )
            found.append(values[real])
        kept = np.bincount(owner[real], minlength=count)
        (longest,) = self.spec.feature_spec[names[0]].dimensions or (0,)
        self._refuse(names[0], kept > longest, kept, f"at most {longest} items (dimensions)")
        return found, np.concatenate([[0], np.cumsum(kept)])

    def _refuse(self, name: str, wrong: npt.NDArray[np.bool_], found: Numbers, what: str) -> None:
        if wrong.any():
            row = int(np.argmax(wrong))
            self.refuse(row, f"{name}: expected {what}, found {found[row]}.")

    def refuse(self, row: int, what: str) -> NoReturn:
        """Refuse a row of the batch."""
        raise MerlinSimError(f"{self.rows.where(row)}: {what}")

    def hashes(self) -> tuple[Hashes, Hashes, Hashes]:
        """Hash what each row has seen.

        Returns:
            [rows] of the user and the positive history; of the user and the history that the next
            sample has, where this one's target was taken; and of the whole sample.
        """
        items, offsets = self.seen
        (longest,) = self._width(POSITIVE_HISTORY)
        lengths, target = np.diff(offsets), _mixed(self.targets[0])
        seen = _of_lists(items, offsets)
        oldest = np.zeros(len(lengths), np.uint64)
        full = lengths == longest
        oldest[full] = _mixed(items[offsets[:-1][full]]) * _powers(longest)[-1]
        following = (seen - oldest) * GOLDEN + target
        # Of one item a list's hash is the mixed item: what is joined with it is mixed once more.
        of_user = mix_arrays(_mixed(next(iter(self.users.values()))))
        (drawn, *_), drawn_offsets = self.histories[NEGATIVE_HISTORY]
        rest = mix_arrays(_of_lists(drawn, drawn_offsets) + mix_arrays(target))
        own = mix_arrays(seen + of_user)
        whole = mix_arrays(own ^ (rest + self.labels.astype(np.uint64)))
        return own, mix_arrays(following + of_user), whole

    def _width(self, channel: str) -> tuple[int, ...]:
        return self.spec.feature_spec[self.spec.channel_spec[channel][0]].dimensions or (0,)


def _mixed(values: Numbers) -> Hashes:
    found: Hashes = mix_arrays(values.astype(np.uint64))
    return found


def _powers(count: int) -> Hashes:
    """The powers of an odd number modulo 2^64, from the zeroth on."""
    return np.cumprod(np.concatenate([[np.uint64(1)], np.full(max(0, count - 1), GOLDEN)]))


def _of_lists(values: Numbers, offsets: Numbers) -> Hashes:
    """Hash lists: a polynomial modulo 2^64, whose last value has the power 0."""
    lengths = np.diff(offsets)
    from_end = np.repeat(offsets[1:], lengths) - 1 - np.arange(len(values))
    terms = _mixed(values) * _powers(int(lengths.max(initial=0)))[from_end]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    found: Hashes = sums[offsets[1:]] - sums[offsets[:-1]]
    return found


@dataclass(frozen=True)
class SampleRows:
    """All rows of a dataset of samples; its histories stay in the files."""

    dataset: DatasetDirectory
    mapping: Numbers
    """[rows] The number of each row's mapping."""
    users: Mapping[str, Numbers]
    label: Numbers
    target: Numbers
    length: Numbers
    """Items of the positive history."""
    seen: Hashes
    """See :meth:`SampleBatch.hashes`, and so for the next two."""
    following: Hashes
    whole: Hashes
    _starts: list[int] = field(default_factory=list)
    _origins: list[ChunkRows] = field(default_factory=list)

    @property
    def user(self) -> Numbers:
        """[rows] The feature that tells users apart."""
        return next(iter(self.users.values()))

    @property
    def mappings(self) -> list[str]:
        """Their names."""
        return list(self.dataset.spec.source_spec)

    def where(self, row: int) -> str:
        """Name the file of a row, and its place there."""
        place = bisect_right(self._starts, row) - 1
        return self._origins[place].where(row - self._starts[place])

    def history(self, row: int) -> Numbers:
        """Read the positive history of one row."""
        for first, batch, _ in batches(self.dataset):
            if row < first + batch.rows.table.num_rows:
                items, offsets = batch.seen
                return items[slice(*offsets[row - first : row - first + 2])]
        raise IndexError(row)


def batches(dataset: DatasetDirectory) -> Iterator[tuple[int, SampleBatch, int]]:
    """Read all rows: the number of the first one, the rows, and the number of their mapping."""
    first, spec = 0, dataset.spec
    for number, (chunk,) in enumerate(spec.source_spec.values()):
        for rows in read_chunk(dataset.path, chunk, spec.feature_spec):
            yield first, SampleBatch(rows, spec), number
            first += rows.table.num_rows


def read_rows(dataset: DatasetDirectory, items: ItemFeatures, report: Report) -> SampleRows:
    """Read what tells samples apart, and what is known of items."""
    columns: dict[str, list[npt.NDArray[Any]]] = {}
    starts, origins = [], []
    for first, batch, mapping in batches(dataset):
        count = batch.rows.table.num_rows
        items.add(batch)
        length = np.diff(batch.seen[1])
        found = (np.full(count, mapping), batch.labels, batch.targets[0], length, *batch.hashes())
        for name, values in zip(COLUMNS, found, strict=True):
            columns.setdefault(name, []).append(values)
        for name, ids in batch.users.items():
            columns.setdefault(f"user {name}", []).append(ids)
        starts.append(first)
        origins.append(ChunkRows(pa.table({}), batch.rows.path, batch.rows.first))
        report(count, count)
    joined: dict[str, Any] = {n: np.concatenate(columns.pop(n)) for n in list(columns)}
    users = {name: joined.pop(f"user {name}") for name in dataset.channels[USER_FEATURES] if joined}
    if not joined or not (joined["label"] == 1).any():
        raise MerlinSimError(f"{dataset.path}: expected rows with label 1, found none.")
    return SampleRows(dataset, users=users, **joined, _starts=starts, _origins=origins)


class ItemFeatures:
    """The ids of each item's features, by item; 0 where none is known."""

    def __init__(self, spec: FeatureSpec, known: list[Numbers | None]) -> None:
        """Begin with what the dataset's table of items says."""
        self.names = spec.channel_spec[TARGET_ITEM_FEATURES]
        size = int(spec.feature_spec[self.names[0]].cardinality or 0) + 1
        self.by_item = [np.zeros(size, np.int64) if ids is None else ids.copy() for ids in known]

    def add(self, batch: SampleBatch) -> None:
        """Take note of rows.

        Raises:
            MerlinSimError: Where an item has another id of a feature than it had before.
        """
        rows = np.arange(batch.rows.table.num_rows)
        self._add(batch, self.names, batch.targets, rows)
        for channel, (values, offsets) in batch.histories.items():
            names = batch.spec.channel_spec.get(channel, ())
            self._add(batch, names, values, np.repeat(rows, np.diff(offsets)))

    def _add(
        self, batch: SampleBatch, names: tuple[str, ...], values: list[Numbers], rows: Numbers
    ) -> None:
        items = values[0]
        for name, ids, known in zip(names[1:], values[1:], self.by_item, strict=False):
            new = np.flatnonzero(known[items] == 0)[
                ::-1
            ]  # the first row is written last, and stays
            known[items[new]] = ids[new]
            wrong = np.flatnonzero(known[items] != ids)
            if len(wrong):
                item = items[wrong[0]]
                batch.refuse(
                    int(rows[wrong[0]]),
                    f"{name}: expected {known[item]} beside item {item}, as elsewhere, found "
                    f"{ids[wrong[0]]}. Users' rows hold one value of each feature for an item.",
                )
