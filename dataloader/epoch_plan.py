"""Which rows make up which global batch, and which of them are one rank's.

The order of an epoch depends on the data's layout, the global batch size, the seed and the
epoch, never on the number of ranks: every rank cuts its own slots out of the same global
batches. So every row is used exactly once, all ranks take the same number of steps, and two
ranks see in each step the rows that one rank would have seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .positions import Positions, counted_before
from .user_rows import UserBlock, UserRows

Rows = npt.NDArray[np.int64]

PIECES = 64
"""Parts in which a window is shuffled: a rank's slots are in few of them."""


@dataclass(frozen=True)
class ShuffleWindow:
    """Consecutive rows of the epoch's sequence that become ``batches`` whole global batches."""

    index: int
    first_row: int
    batches: int
    batch_rows: int


@dataclass(frozen=True)
class RankRows:
    """Rows of a window that one rank reads, and how its batches are made of them."""

    spans: list[tuple[int, int]]
    """Ranges [start, stop) of the epoch's sequence, ascending."""
    batches: list[Rows]
    """One array per batch: positions in the concatenation of ``spans``."""


@dataclass(eq=False)
class EpochPlan:
    """The order of one epoch over ``part_rows`` (the number of rows of each row group).

    The parts are put in a random order, which makes the epoch's sequence of rows; windows of
    whole global batches are cut from it; a window is shuffled in :data:`PIECES` pieces, each of
    which fills the same slots of all the window's batches. Without ``shuffle`` the sequence is
    the stored order and a global batch is a run of consecutive rows.

    Example:
        >>> plan = EpochPlan([3, 3], global_batch_size=4, shuffle=False)
        >>> plan.steps
        2
        >>> [[rows.tolist() for rows in plan.rank_rows(window, rank=1, size=2).batches]
        ...  for window in plan.windows()]
        [[[0, 1]], [[0]]]

    Args:
        part_rows: rows of each part, in stored order.
        global_batch_size: rows per step over all ranks.
        shuffle: a new order in each epoch, or the stored one.
        seed: the same on every rank.
        epoch: counted from 0.
        window_rows: about how many rows are shuffled together (at least two global batches).
        drop_last: leave out the rows that do not fill a global batch.
        least_steps: steps at least, of which the last ones may have no rows.
    """

    part_rows: Sequence[int]
    global_batch_size: int
    shuffle: bool
    seed: int = 0
    epoch: int = 0
    window_rows: int = 65536
    drop_last: bool = False
    least_steps: int = 0

    def __post_init__(self) -> None:
        self.rows = int(sum(self.part_rows))
        self.part_order = np.arange(len(self.part_rows), dtype=np.int64)
        if self.shuffle:
            self._random(0, 0).shuffle(self.part_order)
        ordered = np.asarray(self.part_rows, dtype=np.int64)[self.part_order]
        self.part_starts: Rows = np.concatenate([[0], np.cumsum(ordered)]).astype(np.int64)
        self.window_batches = max(2, self.window_rows // self.global_batch_size)

    @property
    def steps(self) -> int:
        """Steps of the epoch, the same on every rank."""
        return max(self.steps_with_rows, self.least_steps)

    @property
    def steps_with_rows(self) -> int:
        """Steps that have rows; those that have none are the last."""
        full, rest = divmod(self.rows, self.global_batch_size)
        return full + (rest > 0 and not self.drop_last)

    def windows(self, first_step: int = 0) -> Iterator[ShuffleWindow]:
        """Cut the epoch into windows, leaving out those that end before ``first_step``."""
        size = self.global_batch_size
        full, rest = divmod(self.rows, size)
        index = 0
        for batch in range(0, full, self.window_batches):
            batches = min(self.window_batches, full - batch)
            index += 1
            if batch + batches > first_step:
                yield ShuffleWindow(index, batch * size, batches, size)
        if rest and not self.drop_last and first_step <= full:
            yield ShuffleWindow(index + 1, full * size, 1, rest)

    def batch_rows(self, step: int) -> int:
        """Rows of the global batch of ``step``: the last one may be smaller."""
        return max(0, min(self.global_batch_size, self.rows - step * self.global_batch_size))

    def rank_rows(self, window: ShuffleWindow, rank: int, size: int) -> RankRows:
        """Say what ``rank`` of ``size`` reads of ``window``, and in what order it uses it."""
        low, high = slots(window.batch_rows, rank, size)
        if self.shuffle:
            return self._shuffled_rows(window, low, high)
        starts = window.first_row + np.arange(window.batches) * window.batch_rows
        spans = _joined([(int(start) + low, int(start) + high) for start in starts])
        taken = high - low
        batches = [np.arange(i * taken, (i + 1) * taken) for i in range(window.batches)]
        return RankRows(spans, batches)

    def _shuffled_rows(self, window: ShuffleWindow, low: int, high: int) -> RankRows:
        spans: list[tuple[int, int]] = []
        columns: list[Rows] = []
        read = 0
        for piece in range(PIECES):
            first, last = slots(window.batch_rows, piece, PIECES)
            start, stop = max(low, first), min(high, last)
            if start >= stop:
                continue
            rows = window.batches * (last - first)
            order = self._random(window.index, piece + 1).permutation(rows)
            order = order.reshape(window.batches, last - first)
            columns.append(read + order[:, start - first : stop - first])
            begin = window.first_row + window.batches * first
            spans.append((begin, begin + rows))
            read += rows
        table = np.concatenate(columns, axis=1) if columns else np.empty((window.batches, 0), int)
        return RankRows(_joined(spans), list(np.ascontiguousarray(table)))

    def _random(self, window: int, piece: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.epoch, window, piece])


class PlannedSteps(NamedTuple):
    """Some steps of an epoch, whose rows are read together."""

    first: int
    """The first step."""
    indices: range
    """Whose rows they need: indices into the plan's order of parts."""
    windows: list[ShuffleWindow]


def planned_steps(
    plan: EpochPlan, first_step: int, most_rows: int, fits: Callable[[range], bool]
) -> Iterator[PlannedSteps]:
    """Cut what is left of an epoch where ``most_rows`` or what fits the memory is reached."""
    taken: list[ShuffleWindow] = []
    for window in plan.windows(first_step):
        longer = [*taken, window]
        rows = sum(one.batches * one.batch_rows for one in longer)
        if taken and (rows > most_rows or not fits(_indices(plan, longer))):
            yield _planned(plan, taken)
            longer = [window]
        taken = longer
    if taken:
        yield _planned(plan, taken)


def _planned(plan: EpochPlan, windows: list[ShuffleWindow]) -> PlannedSteps:
    return PlannedSteps(
        windows[0].first_row // plan.global_batch_size, _indices(plan, windows), windows
    )


def _indices(plan: EpochPlan, windows: Sequence[ShuffleWindow]) -> range:
    last = windows[-1]
    stop = last.first_row + last.batches * last.batch_rows
    first, end = np.searchsorted(plan.part_starts, [windows[0].first_row, stop - 1], side="right")
    return range(int(first) - 1, int(end))


def steps_entries(
    plan: EpochPlan,
    planned: PlannedSteps,
    entries_of: Callable[[int], Rows],
    rank: int,
    ranks: int,
    rows: int,
) -> Rows:
    """The entries of a rank's batches, [steps, rows]; -1 where a batch has fewer."""
    sequence = np.concatenate([entries_of(index) for index in planned.indices])
    begin = int(plan.part_starts[planned.indices.start])
    batches: list[Rows] = []
    for window in planned.windows:
        mine = plan.rank_rows(window, rank, ranks)
        spans = [np.arange(start - begin, stop - begin) for start, stop in mine.spans]
        read = np.concatenate([np.empty(0, np.int64), *spans])
        batches += [sequence[read[batch]] for batch in mine.batches]
    entries = np.full((len(batches), rows), -1, np.int64)
    for batch, line in zip(batches, entries, strict=True):
        line[: len(batch)] = batch
    return entries


def slots(batch_rows: int, rank: int, size: int) -> tuple[int, int]:
    """The rows [low, high) of a global batch of ``batch_rows`` that are ``rank``'s."""
    return rank * batch_rows // size, (rank + 1) * batch_rows // size


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, stop in spans:
        if start == stop:
            continue
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined


Array = npt.NDArray[Any]
ORDER_OF_SEGMENTS = 1 << 40
"""Separates the random numbers of a part's order from those of the epoch's windows."""


@dataclass(frozen=True)
class Segmentation:
    """How users' positions are cut into segments that stay together, and what each becomes."""

    longest: int
    """Positions of a segment."""
    of_position: int
    """Samples of a position."""
    are_rows: bool
    """Whether a segment is one row of a batch, rather than each of its samples."""

    def rows_of_parts(self, users: UserRows) -> list[int]:
        """How many rows each part of the users has; lists are read where they say it alone."""
        layout = users.layout
        if layout.roles is None and (not self.are_rows or layout.same_time is None):
            return [self._rows_of(None, 0 * counts, counts) for counts in users.part_positions]
        return [self._rows_of(*users.read_positions(number)) for number in users.parts]

    def _rows_of(self, found: Positions | None, begins: Array, ends: Array) -> int:
        """How many rows users have; without ``found`` all may be predicted, and sees all before."""
        counts = ends - begins
        if self.are_rows:
            if found is not None and found.seen is not None:
                return len(
                    cut_by_reach(found.starts[:-1], begins, ends, found.seen, self.longest)[0]
                )
            return int((-(-counts // self.longest)).sum())
        if found is None or found.labels is None:
            return self.of_position * int(counts.sum())
        taken = counted_before(found.labels)
        positives = taken[found.starts[:-1] + ends] - taken[found.starts[:-1] + begins]
        return int(counts.sum()) + (self.of_position - 1) * int(positives.sum())

    def entries(
        self, block: UserBlock, mapping: str, number: int, random: np.random.Generator | None
    ) -> Array:
        """The entries of a row group, in the order in which an epoch goes through them.

        Without ``random`` they stay in the order of the users.
        """
        users, found = slice(*block.group_starts[number : number + 2]), block.positions
        starts = found.starts[:-1][users]
        begins, ends = (of_users[users] for of_users in block.ranges[mapping])
        rows, firsts, counts = self._cut(found, starts, begins, ends)
        if random is not None:
            order = random.permutation(len(rows))
            rows, firsts, counts = rows[order], firsts[order], counts[order]
        interactions = starts[rows] + firsts
        if self.are_rows:
            return np.asarray(interactions * self.longest + counts - 1)
        if found.labels is None:
            return each_of(interactions * self.of_position, counts * self.of_position)
        interactions = each_of(interactions, counts)  # one entry for what was not taken
        samples = np.where(found.labels[interactions] > 0, self.of_position, 1)
        return each_of((interactions + 1) * self.of_position - samples, samples)

    def _cut(
        self, found: Positions, starts: Array, begins: Array, ends: Array
    ) -> tuple[Array, Array, Array]:
        """Cut into segments: whose each is, its first position, and how many it has."""
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
    """Cut users' positions into segments whose samples see nearly the same.

    A segment has at most ``longest`` positions, and its last sample sees at most ``longest`` - 1
    interactions more than its first one. Returns, of each segment, whose it is, its first position,
    and how many it has.

    >>> seen = np.array([0, 1, 1, 1, 4])
    >>> found = cut_by_reach(np.array([0]), np.array([1]), np.array([5]), seen, 3)
    >>> [values.tolist() for values in found]
    [[0, 0], [1, 4], [3, 1]]
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
    while len(current):  # the first segment of all users, the second, ...
        firsts.append(current)
        after = following[current]
        current = after[after < offsets[1:][users[current]]]
    found = np.sort(np.concatenate([np.empty(0, np.int64), *firsts]))
    return users[found], position[found], following[found] - found
