"""Refuses users whose samples would be nonsense, with file, row, user and position."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..foundation.exceptions import MerlinSimError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class StoredUsers:
    """Users as files hold them."""

    origin: Callable[[int], str]
    """Names the file and row of a user."""
    users: Mapping[str, Array]
    """[users] By user feature, its ids; the first tells users apart."""
    items: Array
    """[interactions] All histories' items."""
    starts: Array
    """[users + 1] Where each history begins among them."""
    positions: Mapping[str, tuple[Array, Array]]
    """[users] By mapping, the first position that is a sample, and the one after the last."""
    times: tuple[Array, Array] | None = None
    """All interactions' times, [interactions], and where each user's begin, [users + 1]."""
    same_time: tuple[Array, Array] | None = None
    """How many before each interaction have its own time, and where each user's begin."""


@dataclass(frozen=True)
class UserCheck:
    """What may stand in a file of users."""

    largest: Mapping[str, int]
    """By user feature, its last id."""
    history: str
    """The column with the items."""
    last_item: int
    """The last id of an item."""
    columns: Mapping[str, tuple[str, str]]
    """By mapping, the columns of the positions."""
    times: str | None = None
    """The column with the times; None without."""
    same_time: str | None = None
    """The column that says how many before each interaction have its own time; None without."""

    def __call__(self, stored: StoredUsers) -> None:
        """Look at everything.

        Raises:
            MerlinSimError: With the first thing that is wrong.
        """
        for name, largest in self.largest.items():
            values = stored.users[name]
            wrong = (values < 0) | (values > largest)
            what = f"column {name} should hold an id of 0 to {largest}"
            _refuse_first(stored, wrong, values, what)
        self._check_items(stored)
        if self.times is not None:
            self._check_times(stored, self.times)
        if self.same_time is not None:
            self._check_same_time(stored, self.same_time)
        before: list[str] = []
        for mapping in stored.positions:
            self._check_positions(stored, mapping, before)
            before.append(mapping)

    def _check_items(self, stored: StoredUsers) -> None:
        items = stored.items
        if not len(items) or (items.min() >= 1 and items.max() <= self.last_item):
            return
        wrong = (items < 1) | (items > self.last_item)
        expected = f"column {self.history} should hold ids of 1 to {self.last_item}"
        _refuse_place(stored, wrong, stored.starts, items, expected)

    def _check_times(self, stored: StoredUsers, column: str) -> None:
        assert stored.times is not None
        times, starts = stored.times
        lengths, items = np.diff(starts), np.diff(stored.starts)
        what = f"column {column} should hold a time for each item of {self.history}"
        _refuse_first(stored, lengths != items, lengths, what)
        is_wrong = ~np.isfinite(times)
        goes_back = np.zeros(len(times), bool)
        goes_back[1:] = times[1:] < times[:-1]
        goes_back[starts[:-1][lengths > 0]] = False
        for wrong, expected in (
            (is_wrong, "a time in seconds"),
            (goes_back, "times in order, oldest first"),
        ):
            _refuse_place(stored, wrong, starts, times, f"column {column} should hold {expected}")

    def _check_same_time(self, stored: StoredUsers, column: str) -> None:
        """Counts go up by one within a time, and begin at 0 with the next."""
        assert stored.same_time is not None
        counts, starts = stored.same_time
        lengths, items = np.diff(starts), np.diff(stored.starts)
        what = f"column {column} should hold a number for each item of {self.history}"
        _refuse_first(stored, lengths != items, lengths, what)
        before = np.full(len(counts), -1, np.int64)
        before[1:] = counts[:-1]
        before[starts[:-1][lengths > 0]] = -1
        wrong = (counts != 0) & (counts != before + 1)
        expected = (
            f"column {column} should hold 0, where a time begins, or one more than at the position "
            "before"
        )
        _refuse_place(stored, wrong, starts, counts, expected)

    def _check_positions(self, stored: StoredUsers, mapping: str, before: list[str]) -> None:
        begin, end = self.columns[mapping]
        begins, ends = stored.positions[mapping]
        wrong = (begins < 0) | (begins > ends)
        what = f"column {begin} should hold a position of 0 to that of {end} ({{end}})"
        row = int(np.argmax(wrong)) if wrong.any() else 0
        _refuse_first(stored, wrong, begins, what.format(end=ends[row] if len(ends) else 0))
        what = f"column {end} should not lie beyond the history's end"
        _refuse_first(stored, ends > np.diff(stored.starts), ends, what)
        for other in before:
            others_begin, others_end = stored.positions[other]
            first = np.maximum(begins, others_begin)
            shared = first < np.minimum(ends, others_end)
            what = f"no position should be a sample of {other} and of {mapping}"
            _refuse_first(stored, shared, first, what)


def _refuse_first(stored: StoredUsers, wrong: Array, values: Array, what: str) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        refuse(stored, row, what, values[row])


def _refuse_place(
    stored: StoredUsers, wrong: Array, starts: Array, values: Array, what: str
) -> None:
    """Refuse the first of some interactions that is wrong."""
    if wrong.any():
        place = int(np.argmax(wrong))
        row = int(np.searchsorted(starts, place, side="right")) - 1
        refuse(stored, row, f"position {place - int(starts[row])}: {what}", values[place])


def refuse(stored: StoredUsers, row: int, what: str, received: object) -> None:
    """Raise the error of a user.

    Raises:
        MerlinSimError: Always.
    """
    user = next(iter(stored.users.values()))[row]
    raise MerlinSimError(f"{stored.origin(row)} (user {user}): {what}. Received: {received}.")
