"""The feed of a directory with one row per user: the same batches as of one with samples."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...foundation.cores import count_cores
from ...foundation.exceptions import MerlinSimError
from ...schemas.dataset import DatasetDirectory
from ..epoch_plan import EpochPlan
from ..loader import Loader
from .drawing import fresh_seed
from .made_batch import MadeBatch, Samples
from .made_window import Batch, MadeWindow, Piece
from .recipe import Recipe
from .stretches import Stretches
from .user_rows import UserRows

POSITIONS_TOGETHER = 8
ORDER_OF_STRETCHES = 1 << 40
"""Tells the random numbers of a part's order from those of the epoch's windows."""


@dataclass(frozen=True)
class UserSource:
    """Users, and how samples are made of them."""

    users: UserRows
    recipe: Recipe
    by_reach: ClassVar[bool] = False
    """Whether stretches are rows, and cut where their samples would see too different a history."""

    @property
    def part_rows(self) -> list[int]:
        """The number of samples of each row group."""
        of_position = self.recipe.of_position
        return [of_position * int(counts.sum()) for counts in self.users.part_positions]


class UsersLoader(Loader):
    """A :class:`~merlin_sim.dataloader.loader.Loader` that makes its rows of users' histories.

    It keeps all that the other one promises. In memory are the users of one row group or two,
    and a few batches: how long histories are and how many users there are does not matter.

    Args:
        dataset: as of Loader; names the files.
        batch_size: as of Loader.
        directory: the opened directory of users.
        mapping: ``train`` or ``test``.
        positions_together: consecutive positions of a user that stay together when users are
            shuffled, before the rows of a window are.
        fresh_negatives: draw other negatives in every epoch.
        options: of Loader.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        directory: DatasetDirectory,
        mapping: str,
        positions_together: int = POSITIONS_TOGETHER,
        fresh_negatives: bool = False,
        **options: Any,
    ) -> None:
        """Check the arguments, and read how many samples every user has."""
        super().__init__(dataset, batch_size, **options)
        if positions_together < 1:
            raise MerlinSimError(
                "`positions_together` should be a positive integer. "
                f"Received: `positions_together` = {positions_together}."
            )
        self.positions_together = positions_together
        self.fresh_negatives = fresh_negatives
        self._directory = directory
        self._mapping = mapping

    @property
    def source(self) -> UserSource:  # type: ignore[override]
        """What samples are made of; opened when first needed."""
        if self._source is None:
            self._source = self._open_source()  # type: ignore[assignment]
        return self._source  # type: ignore[return-value]

    def _open_source(self) -> UserSource:
        recipe = Recipe.read(self._directory, self.input_schema, self.fresh_negatives)
        with_times = recipe.intervals is not None
        return UserSource(UserRows(self._directory, self._mapping, with_times), recipe)

    def _read_windows(self, plan: EpochPlan, first_step: int) -> Generator[Any, None, None]:
        recipe = self.source.recipe
        seed = fresh_seed(recipe.seed, plan.epoch) if recipe.fresh_negatives else recipe.seed
        parts = _OpenPart(self.source, plan, self.positions_together)

        def begin_batch(rows: int) -> Batch:
            return self._begin_batch(rows, recipe, seed)

        with contextlib.closing(_Threads(self.parallel_calls)) as threads:
            for window in plan.windows(first_step):
                rows = plan.rank_rows(window, self.global_rank, self.global_size)
                spans = [found for span in rows.spans for found in parts.read(*span)]
                pieces = [self._piece(*found) for found in spans]
                made = MadeWindow(pieces, rows.batches, begin_batch, threads.pool, threads.count)
                yield window.first_row // plan.global_batch_size, made, rows.batches

    @property
    def decodes_in_threads(self) -> bool:
        """Always, on a GPU too."""
        return True

    def _piece(self, stretches: Stretches, first: int, stop: int) -> Piece:
        return Samples.of(stretches, first, stop)

    def _begin_batch(self, rows: int, recipe: Recipe, seed: int) -> Batch:
        return MadeBatch(rows, recipe, seed, self._blocks)


class _Threads:
    """Threads that end with the generator that uses them."""

    def __init__(self, parallel_calls: int | None) -> None:
        self.count = parallel_calls or count_cores()
        self.pool = ThreadPoolExecutor(self.count)

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)


class _OpenPart:
    """Finds ranges of the epoch's sequence, ascending, reading each part once."""

    def __init__(self, source: UserSource, plan: EpochPlan, positions_together: int) -> None:
        self._users, self._of_position = source.users, source.recipe.of_position
        self._by_reach = source.by_reach
        self._plan = plan
        self._together = positions_together
        self._place = -1
        self._stretches: Stretches | None = None

    def read(self, start: int, stop: int) -> Iterator[tuple[Stretches, int, int]]:
        """Give the range [start, stop): parts, each with its own range of samples."""
        starts = self._plan.part_starts
        while start < stop:
            place = int(np.searchsorted(starts, start, side="right")) - 1
            end = min(stop, int(starts[place + 1]))
            yield self._open(place), start - int(starts[place]), end - int(starts[place])
            start = end

    def _open(self, place: int) -> Stretches:
        if place != self._place or self._stretches is None:
            plan, part = self._plan, int(self._plan.part_order[place])
            random = None
            if plan.shuffle:
                random = np.random.default_rng([plan.seed, plan.epoch, ORDER_OF_STRETCHES, part])
            self._stretches = Stretches.of(
                self._users.read(part), self._together, self._of_position, random, self._by_reach
            )
            self._place = place
        return self._stretches
