"""The samples of an epoch in their order: numbers that say of each whose it is, and where.

The numbers are the ``entries`` of :class:`~.behaviour_samples.BehaviourSamples`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .user_rows import Positions, UserBlock, UserRows

Array = npt.NDArray[Any]
ORDER_OF_STRETCHES = 1 << 40
"""Tells the random numbers of a part's order from those of the epoch's windows."""


@dataclass(frozen=True)
class Stretching:
    """How users' positions are cut into stretches that stay together, and what each becomes."""

    longest: int
    """Positions of a stretch."""
    of_position: int
    """Samples of a position."""
    are_rows: bool
    """Whether a stretch is one row of a batch, rather than each of its samples."""

    def rows_of_parts(self, users: UserRows) -> list[int]:
        """How many rows each part of the users has; lists are read where they say it alone."""
        layout = users.layout
        if layout.roles is None and (not self.are_rows or layout.same_time is None):
            return [self._rows_of(None, 0 * counts, counts) for counts in users.part_positions]
        return [self._rows_of(*users.read_positions(number)) for number in users.parts]

    def _rows_of(self, found: Positions | None, begins: Array, ends: Array) -> int:
        """How many rows users have.

        Args:
            found: What may be predicted; None where all is, and all before a sample is seen.
            begins: [users] The first position that is a sample.
            ends: [users] The one after the last.
        """
        counts = ends - begins
        if self.are_rows:
            if found is not None and found.seen is not None:
                return len(
                    cut_by_reach(found.starts[:-1], begins, ends, found.seen, self.longest)[0]
                )
            return int((-(-counts // self.longest)).sum())
        if found is None or found.labels is None:
            return self.of_position * int(counts.sum())
        taken = np.concatenate([[0], np.cumsum(found.labels, dtype=np.int64)])
        positives = taken[found.starts[:-1] + ends] - taken[found.starts[:-1] + begins]
        return int(counts.sum()) + (self.of_position - 1) * int(positives.sum())

    def entries(
        self, block: UserBlock, mapping: str, number: int, random: np.random.Generator | None
    ) -> Array:
        """The entries of a row group, in the order in which an epoch goes through them.

        Args:
            block: The users.
            mapping: Whose samples.
            number: Which row group of the block.
            random: Puts the stretches into its order; None leaves them in the users'.
        """
        users, found = slice(*block.group_starts[number : number + 2]), block.positions
        starts = found.starts[:-1][users]
        begins, ends = (of_users[users] for of_users in block.ranges[mapping])
        rows, firsts, counts = self._cut(found, starts, begins, ends)
        if random is not None:
            order = random.permutation(len(rows))
            rows, firsts, counts = rows[order], firsts[order], counts[order]
        places = starts[rows] + firsts
        if self.are_rows:
            return np.asarray(places * self.longest + counts - 1)
        if found.labels is None:
            return each_of(places * self.of_position, counts * self.of_position)
        places = each_of(places, counts)  # one entry for what was not taken
        samples = np.where(found.labels[places] > 0, self.of_position, 1)
        return each_of((places + 1) * self.of_position - samples, samples)

    def _cut(
        self, found: Positions, starts: Array, begins: Array, ends: Array
    ) -> tuple[Array, Array, Array]:
        """Cut into stretches: whose each is, its first position, and how many it has."""
        if self.are_rows and found.seen is not None:
            return cut_by_reach(starts, begins, ends, found.seen, self.longest)
        pieces = -(-(ends - begins) // self.longest)
        rows = np.repeat(np.arange(len(begins)), pieces)
        firsts = each_of(begins * 0, pieces) * self.longest + begins[rows]
        return rows, firsts, np.minimum(ends[rows] - firsts, self.longest)


def each_of(firsts: Array, counts: Array) -> Array:
    """Count on from each of some numbers.

    >>> each_of(np.array([5, 1]), np.array([2, 3])).tolist()
    [5, 6, 1, 2, 3]
    """
    before = np.cumsum(counts) - counts
    return np.repeat(firsts - before, counts) + np.arange(counts.sum())


def cut_by_reach(
    starts: Array, begins: Array, ends: Array, seen: Array, longest: int
) -> tuple[Array, Array, Array]:
    """Cut users' positions into stretches whose samples see nearly the same.

    A stretch has at most ``longest`` positions, and its last sample sees at most ``longest`` - 1
    interactions more than its first one.

    >>> seen = np.array([0, 1, 1, 1, 4])
    >>> found = cut_by_reach(np.array([0]), np.array([1]), np.array([5]), seen, 3)
    >>> [values.tolist() for values in found]
    [[0, 0], [1, 4], [3, 1]]

    Returns:
        [stretches] whose each is, its first position, and how many it has.
    """
    counts = ends - begins
    users = np.repeat(np.arange(len(begins)), counts)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    position = each_of(begins, counts)
    seen = seen[starts[users] + position]
    # What is seen never gets less along a user's positions: users apart, it is one sorted row.
    apart = users * (int(seen.max(initial=0)) + longest + 1)
    following = np.searchsorted(seen + apart, seen + apart + longest)
    following = np.minimum(following, np.arange(len(seen)) + longest)
    following = np.minimum(following, offsets[1:][users])
    firsts, current = [], offsets[:-1][counts > 0]
    while len(current):  # the first stretch of all users, the second, ...
        firsts.append(current)
        after = following[current]
        current = after[after < offsets[1:][users[current]]]
    found = np.sort(np.concatenate([np.empty(0, np.int64), *firsts]))
    return users[found], position[found], following[found] - found
