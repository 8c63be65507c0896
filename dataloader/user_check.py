"""Refuses users and items that no sample can be made with, with file, row, user and position."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..foundation.exceptions import MerlinSimError
from ..schemas.item_table import COUNT, ID, ItemTable
from ..schemas.users_layout import JOINS, POSITIVE, SAMPLE, UsersLayout

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class StoredUsers:
    """Users as files hold them."""

    origin: Callable[[int], str]
    """Names the file and row of a user."""
    users: Mapping[str, Array]
    """[users] By feature; the first identifies users."""
    lists: Mapping[str, tuple[Array, Array]]
    """By column: of all interactions [interactions], and where each user's begin [users + 1]."""
    ranges: Mapping[str, tuple[Array, Array]]
    """[users] By mapping, the first position that is a sample, and the one after the last."""


@dataclass(frozen=True)
class UserCheck:
    """Check of a file of users."""

    layout: UsersLayout
    largest: Mapping[str, int]
    """By feature of users and interactions, the last id."""
    numbers: Collection[str]
    """Those of them that are numbers."""
    last_item: int
    """The last id of an item."""

    def lists(self, stored: StoredUsers) -> None:
        """Look at features and lists."""
        for name, values in stored.users.items():
            wrong, what = self._wrong_values(name, values)
            _refuse_first(stored, wrong, values, f"column {name} should hold {what}")
        layout, (_, starts) = self.layout, stored.lists[self.layout.history]
        for name, (values, own_starts) in stored.lists.items():
            lengths = np.diff(own_starts)
            what = f"column {name} should hold a value for each item of {layout.history}"
            _refuse_first(stored, lengths != np.diff(starts), lengths, what)
            wrong, what = self._wrong_values(name, values)
            _refuse_interaction(stored, wrong, starts, values, f"column {name} should hold {what}")
        if layout.times in stored.lists:
            self._check_order(stored, str(layout.times))
        if layout.same_time is not None:
            self._check_same_time(stored, layout.same_time)

    def positions(self, stored: StoredUsers, starts: Array) -> None:
        """Look at where samples are."""
        before: list[str] = []
        for mapping in stored.ranges:
            self._check_positions(stored, starts, mapping, before)
            before.append(mapping)

    def _wrong_values(self, name: str, values: Array) -> tuple[Array, str]:
        """Which values of a column cannot be, and what is expected."""
        if name in self.numbers:
            return ~np.isfinite(values), "a finite number"
        if name == self.layout.times:
            return ~np.isfinite(values), "a time in seconds"
        if name == self.layout.roles:
            most = JOINS | SAMPLE | POSITIVE
            return (values < 0) | (values > most), f"a role of 0 to {most}"
        if name in (self.layout.same_time, self.layout.changed_at):
            return np.zeros(len(values), bool), ""
        least = 1 if name == self.layout.history else 0
        most = self.last_item if least else self.largest[name]
        plural = "ids" if least else "an id"
        return (values < least) | (values > most), f"{plural} of {least} to {most}"

    def _check_order(self, stored: StoredUsers, column: str) -> None:
        times, starts = stored.lists[column]
        goes_back = np.zeros(len(times), bool)
        goes_back[1:] = times[1:] < times[:-1]
        goes_back[starts[:-1][np.diff(starts) > 0]] = False
        expected = f"column {column} should hold times in order, oldest first"
        _refuse_interaction(stored, goes_back, starts, times, expected)

    def _check_same_time(self, stored: StoredUsers, column: str) -> None:
        """Counts go up by one within a time, and begin at 0 with the next."""
        counts, starts = stored.lists[column]
        before = np.full(len(counts), -1, np.int64)
        before[1:] = counts[:-1]
        before[starts[:-1][np.diff(starts) > 0]] = -1
        wrong = (counts != 0) & (counts != before + 1)
        expected = (
            f"column {column} should hold 0, where a time begins, or one more than at the position "
            "before"
        )
        _refuse_interaction(stored, wrong, starts, counts, expected)

    def _check_positions(
        self, stored: StoredUsers, starts: Array, mapping: str, before: list[str]
    ) -> None:
        begin, end = self.layout.positions[mapping]
        begins, ends = stored.ranges[mapping]
        wrong = (begins < 0) | (begins > ends)
        what = f"column {begin} should hold a position of 0 to that of {end} ({{end}})"
        row = int(np.argmax(wrong)) if wrong.any() else 0
        _refuse_first(stored, wrong, begins, what.format(end=ends[row] if len(ends) else 0))
        what = f"column {end} should not lie beyond the history's end"
        _refuse_first(stored, ends > np.diff(starts), ends, what)
        for other in before:
            others_begin, others_end = stored.ranges[other]
            first = np.maximum(begins, others_begin)
            shared = first < np.minimum(ends, others_end)
            what = f"no position should be a sample of {other} and of {mapping}"
            _refuse_first(stored, shared, first, what)


def _refuse_first(stored: StoredUsers, wrong: Array, values: Array, what: str) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        refuse(stored, row, what, values[row])


def _refuse_interaction(
    stored: StoredUsers, wrong: Array, starts: Array, values: Array, what: str
) -> None:
    """Refuse the first of some interactions that is wrong."""
    if wrong.any():
        index = int(np.argmax(wrong))
        row = int(np.searchsorted(starts, index, side="right")) - 1
        refuse(stored, row, f"position {index - int(starts[row])}: {what}", values[index])


def refuse(stored: StoredUsers, row: int, what: str, received: object) -> None:
    """Raise the error of a user."""
    user = next(iter(stored.users.values()))[row]
    raise MerlinSimError(f"{stored.origin(row)} (user {user}): {what}. Received: {received}.")


LARGEST_COUNT = 2**53


def check_items(
    path: Path, table: pa.Table, features: Sequence[str], largest: Sequence[int], negatives: str
) -> None:
    """Look at everything that is known of items."""
    _check_column(path, table, ID, 1, largest[0])
    _check_column(path, table, COUNT, 0, LARGEST_COUNT)
    for name, last in zip(features, largest[1:], strict=True):
        _check_column(path, table, name, 1, last)
    ids = np.asarray(table[ID])
    if len(ids) != largest[0] or len(np.unique(ids)) != largest[0]:
        raise MerlinSimError(f"{path}: column {ID} should hold each of 1 to {largest[0]} once.")
    if not ItemTable(path).counts(negatives).sum():
        raise MerlinSimError(f"{path}: column {COUNT} holds no interaction to draw negatives from.")


def _check_column(path: Path, table: pa.Table, name: str, low: int, high: int) -> None:
    column: Any = table[name].combine_chunks()
    missing = np.asarray(column.is_null())
    values = np.asarray(column.fill_null(low))
    wrong = np.flatnonzero(missing | (values < low) | (values > high))
    if len(wrong):
        row = int(wrong[0])
        raise MerlinSimError(
            f"{path}, row {row + 1}: column {name} should hold {low} to {high}."
            f" Received: {column[row].as_py()}."
        )
