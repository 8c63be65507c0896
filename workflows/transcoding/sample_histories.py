"""Rows of samples as numbers, and the whole history of each user that theirs are cut from.

A history that is shorter than the longest one that is kept gives its sample's position. One of
that length may be cut: it follows the sample whose history, with the target behind it and without
the oldest item, it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

import numba
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from ...foundation.exceptions import MerlinSimError
from ...foundation.hashing import GOLDEN, mix, mix_arrays
from ...foundation.progress import Report
from ...schemas.channels import (
    LABEL,
    NEGATIVE_HISTORY,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    USER_FEATURES,
)
from ...schemas.dataset import DatasetDirectory
from ...schemas.feature_spec import FeatureSpec
from ..frames import lists_of_arrow
from .chunk_files import ChunkRows, read_chunk

Numbers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
SAME_TIME = (
    "A sample that does not see what has its own time (`same_time`) cannot be told from this, and "
    "is not brought to users."
)
WITHOUT_ID = "Users without an id all have 0, and cannot be told apart."


class CheckedSamples:
    """Some rows of samples, checked: ids that may be, histories without padding."""

    def __init__(self, rows: ChunkRows, spec: FeatureSpec) -> None:
        self.rows, self.spec = rows, spec
        (label,) = spec.channel_spec[LABEL]
        labels = np.asarray(rows.table[label])
        rows.require(label, (labels == 0) | (labels == 1), "0 or 1")
        self.labels: Numbers = labels.astype(np.int64)
        self.users = [_ids(rows, spec, name, 0) for name in spec.channel_spec[USER_FEATURES]]
        """[rows] The ids of each user feature, of which the first identifies users."""
        targets = spec.channel_spec[TARGET_ITEM_FEATURES]
        self.targets = [_ids(rows, spec, name, 1) for name in targets]
        """[rows] The ids of the target item, and of each of its features."""
        self.seen = read_lists(rows, spec, POSITIVE_HISTORY)
        self.drawn = read_lists(rows, spec, NEGATIVE_HISTORY)

    def hashes(self) -> tuple[Hashes, Hashes, Hashes]:
        """Hash the rows.

        Returns:
            [rows] of the user and the positive history; of the user and the history that comes
            next where this row's target is clicked; and of the whole sample.
        """
        (items, *_), offsets = self.seen
        (drawn, *_), drawn_offsets = self.drawn
        target, nothing = self.targets[0], np.zeros_like(self.targets[0])
        longest = longest_history(self.spec)
        seen, following = _hash_histories(self.users[0], items, offsets, target, longest)
        other, _ = _hash_histories(nothing, drawn, drawn_offsets, nothing, -1)
        of_sample = mix_arrays((2 * target + self.labels).astype(np.uint64))
        return seen, following, mix_arrays(seen ^ mix_arrays(other ^ of_sample))

    def note_features(self, of_users: list[Numbers], of_items: list[Numbers]) -> None:
        """Note the ids of users' and items' features, -1 before; refuse a second one."""
        channels, (user, *others) = self.spec.channel_spec, self.users
        for name, ids, known in zip(channels[USER_FEATURES][1:], others, of_users, strict=True):
            row = _note(known, user, ids)
            if row is not None:
                raise MerlinSimError(
                    f"{self.rows.where(row)}: user {user[row]}: {name}: expected "
                    f"{known[user[row]]}, as in another row, found {ids[row]}. Users' rows hold "
                    "one value of each feature for a user."
                )
        own = (self.targets, np.arange(self.rows.table.num_rows + 1))
        for channel, (values, offsets) in (
            (TARGET_ITEM_FEATURES, own), (POSITIVE_HISTORY, self.seen),
            (NEGATIVE_HISTORY, self.drawn),
        ):  # fmt: skip
            items, *others = values
            names = channels.get(channel, ())[1:]
            for name, ids, known in zip(names, others, of_items, strict=False):
                index = _note(known, items, ids)
                if index is not None:
                    row = int(np.searchsorted(offsets, index, "right")) - 1
                    raise MerlinSimError(
                        f"{self.rows.where(row)}: {name}: expected {known[items[index]]} beside "
                        f"item {items[index]}, as elsewhere, found {ids[index]}. Users' rows hold "
                        "one value of each feature for an item."
                    )


def _note(known: Numbers, keys: Numbers, values: Numbers) -> int | None:
    """Note each key's first value; returns the number of the first one that is another."""
    new = np.flatnonzero(known[keys] < 0)[::-1]  # the first one is written last, and stays
    known[keys[new]] = values[new]
    wrong = np.flatnonzero(known[keys] != values)
    return int(wrong[0]) if len(wrong) else None


def _ids(rows: ChunkRows, spec: FeatureSpec, name: str, least: int) -> Numbers:
    values = np.asarray(rows.table[name]).astype(np.int64)
    most = int(spec.feature_spec[name].cardinality or 0)
    rows.require(name, (values >= least) & (values <= most), f"an id of {least} to {most}")
    return values


def read_lists(rows: ChunkRows, spec: FeatureSpec, channel: str) -> tuple[list[Numbers], Numbers]:
    """Return a history's [items] ids of items and of each feature, and [rows + 1] offsets."""
    names = spec.channel_spec.get(channel, ())
    if not names:
        return [np.empty(0, np.int64)], np.zeros(rows.table.num_rows + 1, np.int64)
    columns = {name: lists_of_arrow(rows.table[name].combine_chunks()) for name in names}
    items, starts = columns[names[0]]
    is_item, lengths = items > 0, np.diff(starts)
    found = []
    for name, (values, of_column) in columns.items():
        counts, most = np.diff(of_column), int(spec.feature_spec[name].cardinality or 0)
        rows.require(name, counts == lengths, f"as many values as {names[0]} has", counts)
        expected = f"an id of 1 to {most} for each item, and 0 for padding"
        rows.require(name, (values >= is_item) & (values <= most), expected)
        found.append(values[is_item])
    offsets, (longest,) = _offsets(is_item)[starts], spec.feature_spec[names[0]].dimensions or (0,)
    kept = np.diff(offsets)
    rows.require(names[0], kept <= longest, f"at most {longest} items (dimensions)", kept)
    return found, offsets


def longest_history(spec: FeatureSpec) -> int:
    """Return how many items a history has at most."""
    (longest,) = spec.feature_spec[spec.channel_spec[POSITIVE_HISTORY][0]].dimensions or (0,)
    return longest


def _offsets(counts: npt.NDArray[Any]) -> Numbers:
    return np.concatenate([[0], np.cumsum(counts)])


@numba.njit(cache=True, nogil=True)
def _hash_histories(
    users: Numbers, items: Numbers, offsets: Numbers, targets: Numbers, longest: int
) -> tuple[Hashes, Hashes]:
    """Hash each history, and the one that comes next: without the oldest item of ``longest``."""
    seen, following = np.empty(len(targets), np.uint64), np.empty(len(targets), np.uint64)
    for row in range(len(targets)):
        begin, end = offsets[row], offsets[row + 1]
        oldest_kept = begin + 1 if end - begin == longest else begin
        own = after = mix(np.uint64(users[row]))
        for index in range(begin, end):
            item = mix(np.uint64(items[index]))
            own = own * GOLDEN + item
            if index >= oldest_kept:
                after = after * GOLDEN + item
        seen[row] = mix(own)
        following[row] = mix(after * GOLDEN + mix(np.uint64(targets[row])))
    return seen, following


def read_rows(dataset: DatasetDirectory, *channels: str) -> Iterator[tuple[int, int, ChunkRows]]:
    """Read some or all channels: the number of the first row, that of the mapping, the rows."""
    first, spec = 0, dataset.spec
    names = tuple(name for channel in channels for name in spec.channel_spec[channel])
    for mapping, (chunk,) in enumerate(spec.source_spec.values()):
        chunk = replace(chunk, features=names or chunk.features)
        for rows in read_chunk(dataset.path, chunk, spec.feature_spec):
            yield first, mapping, rows
            first += rows.table.num_rows


class Samples:
    """All rows of a dataset of samples as numbers; the histories stay in the files.

    ``of_users`` and ``of_items`` get the id of each of their features but the first, by user and by
    item; what is known of items already is compared.
    """

    def __init__(
        self,
        dataset: DatasetDirectory,
        of_users: list[Numbers],
        of_items: list[Numbers],
        report: Report,
    ) -> None:
        self.dataset = dataset
        self.mappings = list(dataset.spec.source_spec)
        self._pieces: list[tuple[int, ChunkRows]] = []
        columns: list[list[npt.NDArray[Any]]] = [[np.empty(0, np.int64)] for _ in range(5)]
        columns += [[np.empty(0, np.uint64)] for _ in range(3)]
        for first, mapping, rows in read_rows(dataset):
            batch, count = CheckedSamples(rows, dataset.spec), rows.table.num_rows
            batch.note_features(of_users, of_items)
            own = (np.full(count, mapping), batch.users[0], batch.labels, batch.targets[0])
            found = (*own, np.diff(batch.seen[1]), *batch.hashes())
            for parts, part in zip(columns, found, strict=True):
                parts.append(part)
            self._pieces.append((first, ChunkRows(pa.table({}), rows.path, rows.first)))
            report(count, count)
        # One at a time, so that no more than one is in memory twice.
        joined = [np.concatenate(columns.pop(0)) for _ in range(8)]
        if not joined[2].any():
            raise MerlinSimError(f"{dataset.path}: expected rows with label 1, found none.")
        # [rows] each; the hashes are those of CheckedSamples.
        self.mapping, self.user, self.label, self.target, self.length = joined[:5]
        self.seen, self.following, self.whole = joined[5:]

    def where(self, row: int) -> str:
        """Name the file of a row, and its number there."""
        first, rows = self._pieces[bisect_right(self._pieces, row, key=lambda piece: piece[0]) - 1]
        return rows.where(row - first)

    def refuse(self, row: int, reason: str, cause: str = "") -> NoReturn:
        """Refuse a row, for what may be the cause; with the id 0 it is that several users have."""
        user = self.user[row]
        cause = cause if user else WITHOUT_ID
        raise MerlinSimError(f"{self.where(row)}: user {user}: {reason} {cause}".rstrip())


class UserHistories:
    """The whole history of each user, from which the samples' histories are cut.

    Where there is none, the rows that show it are refused.
    """

    def __init__(self, samples: Samples, report: Report) -> None:
        self._samples = samples
        self._longest = longest_history(samples.dataset.spec)
        history = pd.factorize(samples.seen)[0]  # [rows] which of all different histories it has
        positive = self._positives(history)
        self.negatives_per_positive = self._count_negatives(history, positive)
        position = self._positions(positive)
        order = np.lexsort((position, samples.user[positive]))
        self._positive, self._position = positive[order], position[order]
        self.users, self._owner = np.unique(samples.user[self._positive], return_inverse=True)
        """Ids of users, ascending."""
        lasts = np.empty(len(self.users), np.int64)
        lasts[self._owner] = self._position  # the last one stays
        self.starts = _offsets(lasts + 1)
        """[users + 1] Where each user's history begins in ``items``."""
        index = np.empty(len(order), np.int64)
        index[order] = self.starts[self._owner] + self._position
        self._index = index[history]  # [rows] of each row's target
        self._refuse_gaps()
        self.items = self._join(report)
        """All histories, one after the other."""

    def _positives(self, history: Numbers) -> Numbers:
        """[histories] The one row with label 1 that has it."""
        samples = self._samples
        rows = np.flatnonzero(samples.label == 1)
        again = np.flatnonzero(pd.Index(history[rows]).duplicated())
        if len(again):
            self._refuse_twice(
                rows[np.argmax(history[rows] == history[rows[again[0]]])], rows[again[0]]
            )
        positive = np.full(history.max() + 1, -1)
        positive[history[rows]] = rows
        found = positive[history]
        lone = (found < 0) | (samples.mapping[found] != samples.mapping)
        if lone.any():
            row = int(np.argmax(lone))
            samples.refuse(
                row,
                "expected a row with label 1 and the same history in "
                f"{samples.mappings[samples.mapping[row]]}: a row with label 0 is a negative that "
                "was drawn in the place of a positive. Found none.",
            )
        return positive

    def _count_negatives(self, history: Numbers, positive: Numbers) -> int:
        counts = np.bincount(history) - 1
        expected = max(1, int(counts[0]))
        wrong = np.flatnonzero(counts != expected)
        if len(wrong):
            self._samples.refuse(
                positive[wrong[0]],
                f"expected {expected} rows with label 0 and the history of this row with label 1: "
                f"users' rows have as many for each. Found {counts[wrong[0]]}.",
            )
        return expected

    def _positions(self, positive: Numbers) -> Numbers:
        """[histories] Its length; of a cut one, one more than that which it goes on from."""
        samples, own = self._samples, np.arange(len(positive))
        length = samples.length[positive]
        before = own.copy()
        if (length == self._longest).any():
            after = pd.Index(samples.seen[positive]).get_indexer(samples.following[positive])
            goes_on = (length >= self._longest - 1) & (after >= 0) & (after != own)
            for is_cut in (True, False):  # what is not cut gives the position, and comes first
                some = np.flatnonzero(goes_on & ((length == self._longest) == is_cut))
                again = np.flatnonzero(pd.Index(after[some]).duplicated())
                if len(again):
                    first = np.argmax(after[some] == after[some[again[0]]])
                    self._refuse_repeated(positive[some[first]], positive[some[again[0]]])
                before[after[some]] = some
        root, steps = before, (before != own).astype(np.int64)
        for _ in range(len(own).bit_length()):
            if np.array_equal(root[root], root):
                break
            steps, root = steps + steps[root], root[root]
        circle = np.flatnonzero(before[root] != root)
        if len(circle):
            self._refuse_repeated(positive[circle[0]], positive[before[circle[0]]])
        position: Numbers = length[root] + steps
        return position

    def _refuse_gaps(self) -> None:
        """Refuse two cut histories of a user that would have one position."""
        samples, rows = self._samples, self._positive
        same = (np.diff(self._owner) == 0) & (np.diff(self._position) == 0)
        # Of two short ones that differ, the comparison of their items says more.
        cut = np.flatnonzero(same & (samples.length[rows[1:]] == self._longest))
        if len(cut):
            row, other = rows[cut[0] : cut[0] + 2].tolist()
            samples.refuse(
                other,
                "expected a history that goes on from another one of the user by one item. It is "
                f"cut to {self._longest} items, as is that of {samples.where(row)}, and the "
                "samples between the two are missing: what lies between is unknown.",
            )

    def _join(self, report: Report) -> Numbers:
        """Join what targets and histories say of each position; all of them must say the same."""
        samples, items = self._samples, np.full(self.starts[-1], -1)
        items[self._index[self._positive]] = samples.target[self._positive]
        for first, _, rows in read_rows(samples.dataset, POSITIVE_HISTORY):
            (stored, *_), offsets = read_lists(rows, samples.dataset.spec, POSITIVE_HISTORY)
            lengths = np.diff(offsets)
            ends = self._index[first : first + len(lengths)]
            indices = np.repeat(ends - offsets[1:], lengths) + np.arange(len(stored))
            wrong = _note(items, indices, stored)
            if wrong is not None:
                row = first + int(np.searchsorted(offsets, wrong, "right")) - 1
                self._refuse_other(row, int(indices[wrong]), stored[wrong], items[indices[wrong]])
            report(len(lengths), len(lengths))
        return items

    def ranges(self) -> dict[str, tuple[Numbers, Numbers]]:
        """[users] By mapping, each user's first position, and the one after the last."""
        samples, found = self._samples, {}
        firsts = np.empty(len(self.users), np.int64)
        firsts[self._owner[::-1]] = self._position[::-1]
        for number, mapping in enumerate(samples.mappings):
            chosen = np.flatnonzero(samples.mapping[self._positive] == number)
            position, owner = self._position[chosen], self._owner[chosen]
            gaps = np.flatnonzero((np.diff(owner) == 0) & (np.diff(position) != 1))
            if len(gaps):
                before, after = self._positive[chosen[gaps[0] : gaps[0] + 2]].tolist()
                samples.refuse(
                    after,
                    f"expected samples of {mapping} at positions one after the other, as users' "
                    f"rows have them. Found position {position[gaps[0]]} ({samples.where(before)}) "
                    f"and then {position[gaps[0] + 1]}.",
                )
            begin, end = firsts.copy(), firsts.copy()  # of users without a sample in it: empty
            begin[owner[::-1]] = position[::-1]
            end[owner] = position + 1
            found[mapping] = begin, end
        return found

    def _refuse_repeated(self, row: int, other: int) -> NoReturn:
        samples = self._samples
        samples.refuse(
            row,
            "expected a history that no other sample of the user repeats, as it is cut to "
            f"{self._longest} items. {samples.where(other)} repeats it or goes on alike, so the "
            f"order of the two is unknown. {SAME_TIME}",
        )

    def _refuse_twice(self, row: int, other: int) -> NoReturn:
        samples = self._samples
        if samples.length[row] == self._longest:
            self._refuse_repeated(row, other)
        if samples.target[row] == samples.target[other]:
            samples.refuse(
                other, f"expected each sample once, found the one of {samples.where(row)} again."
            )
        samples.refuse(
            other,
            f"expected one target behind a history of {samples.length[row]} items, found "
            f"{samples.target[other]}, and {samples.target[row]} in {samples.where(row)}.",
            SAME_TIME,
        )

    def _refuse_other(self, row: int, index: int, item: int, other_item: int) -> NoReturn:
        """Refuse a row that has another item at an index than an earlier row or a target."""
        samples = self._samples
        for first, _, rows in read_rows(samples.dataset):
            batch = CheckedSamples(rows, samples.dataset.spec)
            (items, *_), offsets = batch.seen
            ends = self._index[first : first + len(offsets) - 1]
            within = index - ends + offsets[1:]
            is_there = (within >= offsets[:-1]) & (within < offsets[1:])
            says_other = is_there.copy()
            says_other[is_there] = items[within[is_there]] == other_item
            says_other |= (ends == index) & (batch.labels == 1) & (batch.targets[0] == other_item)
            if says_other.any():
                break
        other = first + int(np.argmax(says_other))
        user = int(np.searchsorted(self.starts, index, side="right")) - 1
        samples.refuse(
            row,
            "expected histories, with their targets behind them, that are prefixes of one another. "
            f"At position {index - self.starts[user]} of the history this row has item {item}, and "
            f"{samples.where(other)} has {other_item}.",
            SAME_TIME,
        )
