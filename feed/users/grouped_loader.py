"""The feed of users x candidates: a user's history once for all the samples that see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..epoch_plan import Rows
from ..hand_over import to_tensor
from .grouped_batch import GroupedBatch, Groups
from .made_window import Batch, MadeWindow, Piece
from .recipe import Recipe
from .stretches import Stretches, stretches_of
from .users_loader import UsersLoader, UserSource

CANDIDATES = 16
"""Samples of a user that share a history, unless set (see ``benchmarks/bench_grouped.py``)."""


@dataclass(frozen=True)
class StretchSource(UserSource):
    """Users whose rows are stretches of their positions."""

    longest: int

    @property
    def part_rows(self) -> list[int]:
        """The number of stretches of each row group."""
        return [
            int(stretches_of(counts, self.longest).sum()) for counts in self.users.part_positions
        ]


class GroupedLoader(UsersLoader):
    """A :class:`~.users_loader.UsersLoader` whose batches are users x candidates.

    A row is a stretch of a user's consecutive positions; its candidates are their samples, the
    twin before the positive of each. All it promises of rows it promises of stretches: each comes
    once, whatever the ranks. A batch is ``(inputs, labels, weights)``, with U rows, m candidates a
    row and S = max_sequence_length + m / 2 - 1 places:

    - a user feature [U], a target item feature [U, m];
    - a positive history [U, S], left-padded with 0, oldest first: what any candidate of the row
      may see; a negative history [U, S]: an item drawn for each of the same places;
    - ``history_end`` [U, m / 2], int32, of a twin and its positive: both see the
      max_sequence_length places before it that are not padding, never a place at or after it;
    - labels [U, m], weights [U, m], float32: 0 for a filler, where a stretch is shorter than m / 2.

    Args:
        dataset: as of UsersLoader.
        batch_size: rows (stretches) a step on this rank.
        candidates: m: an even number, see
            :func:`~merlin_sim.feed.open_feed.check_candidates`.
        window_rows: rows that are shuffled together, counted in candidates.
        options: of UsersLoader; what stays together is what a row holds.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        candidates: int,
        window_rows: int = 65536,
        **options: Any,
    ) -> None:
        """Keep together what a row holds."""
        rows = max(1, window_rows // candidates)
        super().__init__(
            dataset, batch_size, positions_together=candidates // 2, window_rows=rows, **options
        )
        self.candidates = candidates

    @property
    def samples(self) -> int:
        """Samples of an epoch; rows hold several."""
        return 2 * sum(int(counts.sum()) for counts in self.source.users.part_positions)

    def _open_source(self) -> UserSource:
        source = super()._open_source()
        return StretchSource(source.users, source.recipe, self.positions_together)

    def _piece(self, stretches: Stretches, first: int, stop: int) -> Piece:
        return Groups.of(stretches, first, stop)

    def _begin_batch(self, rows: int, recipe: Recipe, seed: int) -> Batch:
        return GroupedBatch(rows, self.candidates, recipe, seed, self._blocks)

    def _make_batches(self, gathered: Any, batches: list[Rows], skip: int) -> Iterator[Any]:
        assert isinstance(gathered, MadeWindow)
        for index in range(skip, len(batches)):
            inputs, labels, weights = gathered.batch(index)
            tensors = {name: to_tensor(values) for name, values in inputs.items()}
            yield tensors, to_tensor(labels), to_tensor(weights)

    def convert_batch(self, batch: Any) -> Any:
        """Leave the tensors as they are."""
        return batch
