"""Which rows make up which global batch, and which of them are one rank's.

The order of an epoch depends on the data's layout, the global batch size, the seed and the
epoch, never on the number of ranks: every rank cuts its own slots out of the same global
batches. So every row is used exactly once, all ranks take the same number of steps, and two
ranks see in each step the rows that one rank would have seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]

PIECES = 64
"""Parts in which a window is shuffled: a rank's slots are in few of them."""


@dataclass(frozen=True)
class Window:
    """Consecutive rows of the epoch's sequence that become ``batches`` whole global batches."""

    index: int
    first_row: int
    batches: int
    batch_rows: int


@dataclass(frozen=True)
class RankRows:
    """What one rank reads of a window, and how its batches are made of that."""

    spans: list[tuple[int, int]]
    """Ranges [start, stop) of the epoch's sequence, ascending."""
    batches: list[Rows]
    """One array per batch: positions in the concatenation of ``spans``."""


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

    def __init__(
        self,
        part_rows: Sequence[int],
        global_batch_size: int,
        shuffle: bool,
        seed: int = 0,
        epoch: int = 0,
        window_rows: int = 65536,
        drop_last: bool = False,
        least_steps: int = 0,
    ) -> None:
        """Put the parts in this epoch's order."""
        self.least_steps = least_steps
        self.global_batch_size = global_batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = epoch
        self.drop_last = drop_last
        self.rows = int(sum(part_rows))
        self.part_order = np.arange(len(part_rows), dtype=np.int64)
        if shuffle:
            self._random(0, 0).shuffle(self.part_order)
        ordered = np.asarray(part_rows, dtype=np.int64)[self.part_order]
        self.part_starts: Rows = np.concatenate([[0], np.cumsum(ordered)]).astype(np.int64)
        self.window_batches = max(2, window_rows // global_batch_size)

    @property
    def steps(self) -> int:
        """Steps of the epoch, the same on every rank."""
        return max(self.steps_with_rows, self.least_steps)

    @property
    def steps_with_rows(self) -> int:
        """Steps that have rows; those that have none are the last."""
        full, rest = divmod(self.rows, self.global_batch_size)
        return full + (rest > 0 and not self.drop_last)

    def windows(self, first_step: int = 0) -> Iterator[Window]:
        """Cut the epoch into windows, leaving out those that end before ``first_step``."""
        size = self.global_batch_size
        full, rest = divmod(self.rows, size)
        index = 0
        for batch in range(0, full, self.window_batches):
            batches = min(self.window_batches, full - batch)
            index += 1
            if batch + batches > first_step:
                yield Window(index, batch * size, batches, size)
        if rest and not self.drop_last and first_step <= full:
            yield Window(index + 1, full * size, 1, rest)

    def batch_rows(self, step: int) -> int:
        """Rows of the global batch of ``step``: the last one may be smaller."""
        return max(0, min(self.global_batch_size, self.rows - step * self.global_batch_size))

    def rank_rows(self, window: Window, rank: int, size: int) -> RankRows:
        """Say what ``rank`` of ``size`` reads of ``window``, and in what order it uses it."""
        low, high = slots(window.batch_rows, rank, size)
        if self.shuffle:
            return self._shuffled_rows(window, low, high)
        starts = window.first_row + np.arange(window.batches) * window.batch_rows
        spans = _joined([(int(start) + low, int(start) + high) for start in starts])
        taken = high - low
        batches = [np.arange(i * taken, (i + 1) * taken) for i in range(window.batches)]
        return RankRows(spans, batches)

    def _shuffled_rows(self, window: Window, low: int, high: int) -> RankRows:
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
    places: range
    """Whose rows they need: places in the plan's order of parts."""
    windows: list[Window]


def planned_steps(
    plan: EpochPlan, first_step: int, most_rows: int, fits: Callable[[range], bool]
) -> Iterator[PlannedSteps]:
    """Cut what is left of an epoch where ``most_rows`` or what fits the memory is reached.

    Args:
        plan: The epoch's.
        first_step: The first step that is left.
        most_rows: Rows of one cut, over all ranks; a window at least.
        fits: Says of places in the plan's order of parts whether their rows fit.
    """
    taken: list[Window] = []
    for window in plan.windows(first_step):
        longer = [*taken, window]
        rows = sum(one.batches * one.batch_rows for one in longer)
        if taken and (rows > most_rows or not fits(_places(plan, longer))):
            yield _planned(plan, taken)
            longer = [window]
        taken = longer
    if taken:
        yield _planned(plan, taken)


def _planned(plan: EpochPlan, windows: list[Window]) -> PlannedSteps:
    return PlannedSteps(
        windows[0].first_row // plan.global_batch_size, _places(plan, windows), windows
    )


def _places(plan: EpochPlan, windows: Sequence[Window]) -> range:
    last = windows[-1]
    stop = last.first_row + last.batches * last.batch_rows
    first, end = np.searchsorted(plan.part_starts, [windows[0].first_row, stop - 1], side="right")
    return range(int(first) - 1, int(end))


def steps_entries(
    plan: EpochPlan,
    planned: PlannedSteps,
    of_place: Callable[[int], Rows],
    rank: int,
    ranks: int,
    rows: int,
) -> Rows:
    """The entries of a rank's batches, [steps, rows]; -1 where a batch has fewer.

    Args:
        plan: The epoch's.
        planned: The steps.
        of_place: The entries of the part at a place of the plan's order.
        rank: The rank.
        ranks: How many there are.
        rows: Rows of a rank's batch.
    """
    sequence = np.concatenate([of_place(place) for place in planned.places])
    begin = int(plan.part_starts[planned.places.start])
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
    """The places [low, high) of a global batch of ``batch_rows`` rows that are ``rank``'s."""
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
