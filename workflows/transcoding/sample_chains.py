"""Samples of a user in their order: each one's history, and its target behind it, begins the next.

A history that is shorter than the longest one that is kept tells its sample's position. One of
that length is cut, perhaps: it follows the sample whose history, with the target and without what
is older, it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

import numpy as np

from ...foundation.exceptions import MerlinSimError
from .sample_keys import Numbers, SampleRows

SAME_TIME = (
    "A sample that does not see what has its own time (`same_time`) cannot be told from this, and "
    "is not brought to users."
)


@dataclass(frozen=True)
class SampleChains:
    """Where each sample stands among all users' interactions."""

    rows: SampleRows
    longest: int
    """Items that a history has at most."""

    @cached_property
    def positives(self) -> Numbers:
        """The rows with label 1, by user and position."""
        rows = self.rows
        chosen = np.flatnonzero(rows.label == 1)
        order = np.lexsort((self._position[chosen], rows.user[chosen]))
        chosen = chosen[order]
        first, second = chosen[:-1], chosen[1:]
        twice = rows.user[first] == rows.user[second]
        twice &= self._position[first] == self._position[second]
        if twice.any():
            self._refuse_twice(int(first[twice][0]), int(second[twice][0]))
        return chosen

    @cached_property
    def users(self) -> Numbers:
        """All users' ids, ascending."""
        found: Numbers = np.unique(self.rows.user[self.positives])
        return found

    @cached_property
    def starts(self) -> Numbers:
        """[users + 1] Where each history begins."""
        user, position = self.rows.user[self.positives], self._position[self.positives]
        last = np.searchsorted(user, self.users, side="right") - 1
        return np.concatenate([[0], np.cumsum(position[last] + 1)])

    @cached_property
    def lacking(self) -> Numbers:
        """[rows] How many of the newest items of its history no sample before it tells."""
        user, position = self.rows.user[self.positives], self._position[self.positives]
        before = np.full(len(user), -1)
        before[1:] = np.where(user[1:] == user[:-1], position[:-1], -1)
        found = np.zeros(len(self.rows.user), np.int64)
        found[self.positives] = position - before - 1
        return found

    @cached_property
    def place(self) -> Numbers:
        """[rows] Where each sample's position is; a negative has that of its positive."""
        rows = self.rows
        number = np.searchsorted(self.users, rows.user[self.positives])
        found = np.zeros(len(rows.user), np.int64)
        found[self.positives] = self.starts[number] + self._position[self.positives]
        found[self._negatives] = found[self._partner]
        return found

    @cached_property
    def negatives_per_positive(self) -> int:
        """As many negatives as each positive has."""
        rows = self.rows
        counts = np.bincount(self._partner, minlength=len(rows.user))[self.positives]
        wrong = np.flatnonzero(counts != max(1, counts[0]))
        if len(wrong):
            row = int(self.positives[wrong[0]])
            raise MerlinSimError(
                f"{rows.where(row)}: user {rows.user[row]}: expected {max(1, counts[0])} rows with "
                "label 0 and the history of this row with label 1: users' rows have as many for "
                f"each. Found {counts[wrong[0]]}."
            )
        return int(counts[0])

    @cached_property
    def ranges(self) -> dict[str, tuple[Numbers, Numbers]]:
        """[users] By mapping, each user's first position, and the one after the last."""
        rows, found = self.rows, {}
        for number, mapping in enumerate(rows.mappings):
            chosen = self.positives[rows.mapping[self.positives] == number]
            position, user = self._position[chosen], rows.user[chosen]
            gaps = np.flatnonzero((user[1:] == user[:-1]) & (np.diff(position) != 1))
            if len(gaps):
                before, after = chosen[gaps[0]], chosen[gaps[0] + 1]
                raise MerlinSimError(
                    f"{rows.where(after)}: user {rows.user[after]}: expected samples of {mapping} "
                    "at positions one after the other, as users' rows have them. Found position "
                    f"{self._position[before]} ({rows.where(before)}) and then "
                    f"{self._position[after]}."
                )
            own, first, counts = np.unique(user, return_index=True, return_counts=True)
            places = np.searchsorted(self.users, own)
            begin, end = np.tile(self._firsts, (2, 1))  # of users without a sample in it: empty
            begin[places] = position[first]
            end[places] = position[first] + counts
            found[mapping] = begin, end
        return found

    @property
    def _firsts(self) -> Numbers:
        """[users] Each user's first position that is a sample."""
        place = np.searchsorted(self.rows.user[self.positives], self.users)
        found: Numbers = self._position[self.positives[place]]
        return found

    @cached_property
    def features(self) -> dict[str, Numbers]:
        """[users] By user feature, its ids."""
        rows, found = self.rows, {}
        number = np.searchsorted(self.users, rows.user)
        for name, ids in rows.users.items():
            found[name] = np.zeros(len(self.users), np.int64)
            found[name][number] = ids
            wrong = np.flatnonzero(found[name][number] != ids)
            if len(wrong):
                row = int(wrong[0])
                raise MerlinSimError(
                    f"{rows.where(row)}: user {rows.user[row]}: {name}: expected "
                    f"{found[name][number[row]]}, as in another row, found {ids[row]}. Users' rows "
                    "hold one value of each feature for a user."
                )
        return found

    @cached_property
    def _position(self) -> Numbers:
        """[rows] Of the rows with label 1, the position in their user's history."""
        rows, position = self.rows, self.rows.length.copy()
        nodes = np.flatnonzero((rows.label == 1) & (rows.length >= self.longest - 1))
        is_cut = rows.length[nodes] == self.longest
        cut = np.flatnonzero(is_cut)
        cut = cut[np.argsort(rows.seen[nodes[cut]], kind="stable")]
        if not len(cut):
            return position
        seen = rows.seen[nodes[cut]]
        twice = np.flatnonzero(seen[1:] == seen[:-1])
        if len(twice):
            self._refuse_repeated(*nodes[cut[twice[0] : twice[0] + 2]])
        hit = np.minimum(np.searchsorted(seen, rows.following[nodes]), len(cut) - 1)
        next_node = np.where(seen[hit] == rows.following[nodes], cut[hit], -1)
        before = np.arange(len(nodes))
        for last in (True, False):  # a history that is not cut tells the position, and comes first
            some = np.flatnonzero((next_node >= 0) & (is_cut == last))
            some = some[next_node[some] != some]
            if last and len(np.unique(next_node[some])) < len(some):
                order = some[np.argsort(next_node[some], kind="stable")]
                same = np.flatnonzero(np.diff(next_node[order]) == 0)[0]
                self._refuse_repeated(*nodes[order[same : same + 2]])
            before[next_node[some]] = some
        root, steps = before, (before != np.arange(len(nodes))).astype(np.int64)
        for _ in range(len(nodes).bit_length()):
            steps, root = steps + steps[root], root[root]
        endless = np.flatnonzero(before[root] != root)
        if len(endless):
            self._refuse_repeated(nodes[endless[0]], nodes[before[endless[0]]])
        position[nodes] = rows.length[nodes[root]] + steps
        return position

    @cached_property
    def _negatives(self) -> Numbers:
        return np.flatnonzero(self.rows.label == 0)

    @cached_property
    def _partner(self) -> Numbers:
        """Of each row with label 0, the one with label 1 and the same history."""
        rows = self.rows
        by_hash = self.positives[np.argsort(rows.seen[self.positives], kind="stable")]
        place = np.searchsorted(rows.seen[by_hash], rows.seen[self._negatives])
        partner: Numbers = by_hash[np.minimum(place, len(by_hash) - 1)]
        found = rows.seen[partner] == rows.seen[self._negatives]
        found &= rows.mapping[partner] == rows.mapping[self._negatives]
        if not found.all():
            row = int(self._negatives[~found][0])
            raise MerlinSimError(
                f"{rows.where(row)}: user {rows.user[row]}: expected a row with label 1 and the "
                f"same history in {rows.mappings[rows.mapping[row]]}: a row with label 0 is a "
                "negative that was drawn in the place of a positive. Found none."
            )
        return partner

    def _refuse_repeated(self, row: int, other: int) -> NoReturn:
        rows = self.rows
        raise MerlinSimError(
            f"{rows.where(row)}: user {rows.user[row]}: expected a history that no other sample of "
            f"the user repeats, as it is cut to {self.longest} items. {rows.where(other)} repeats "
            f"it or goes on alike, so the order of the two is unknown. {SAME_TIME}"
        )

    def _refuse_twice(self, row: int, other: int) -> NoReturn:
        """Refuse two samples that would have one position."""
        rows = self.rows
        start = f"{rows.where(other)}: user {rows.user[other]}:"
        length = rows.length[row]
        if rows.seen[row] != rows.seen[other] and length < self.longest:
            self.refuse_other(other, row)
        if rows.seen[row] != rows.seen[other]:
            raise MerlinSimError(
                f"{start} expected a history that goes on from another one of the user by one "
                f"item. It is cut to {self.longest} items, as is that of {rows.where(row)}, and "
                "the samples between the two are missing: what lies between is unknown."
            )
        if rows.target[row] == rows.target[other]:
            raise MerlinSimError(
                f"{start} expected each sample once, found the one of {rows.where(row)} again."
            )
        raise MerlinSimError(
            f"{start} expected one target behind a history of {length} items, found "
            f"{rows.target[other]}, and {rows.target[row]} in {rows.where(row)}. {SAME_TIME}"
        )

    def refuse_other(self, row: int, other: int) -> NoReturn:
        """Refuse a row whose history is not the beginning of what another one tells."""
        rows = self.rows
        own = np.append(rows.history(row), rows.target[row])
        theirs = np.append(rows.history(other), rows.target[other])
        begins = [self._position[r] - rows.length[r] for r in (row, other)]
        first = max(begins)
        own, theirs = own[first - begins[0] :], theirs[first - begins[1] :]
        shared = min(len(own), len(theirs))
        place = int(np.argmax(own[:shared] != theirs[:shared]))
        raise MerlinSimError(
            f"{rows.where(row)}: user {rows.user[row]}: expected histories, with their targets "
            f"behind them, that are prefixes of one another. At position {first + place} of the "
            f"history this row has item {own[place]}, and {rows.where(other)} has "
            f"{theirs[place]}. {SAME_TIME}"
        )
