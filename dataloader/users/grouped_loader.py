"""The feed of users x candidates: a user's history once for all the samples that see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from ...schemas.dataset import DatasetDirectory
from ..epoch_plan import Rows
from ..hand_over import to_tensor
from .grouped_batch import GroupedBatch, Groups
from .kernels import cut_by_reach
from .made_window import Batch, MadeWindow, Piece
from .recipe import Recipe
from .stretches import Stretches, stretches_of
from .users_loader import UsersLoader, UserSource


@dataclass(frozen=True)
class StretchSource(UserSource):
    """Users whose rows are stretches of their positions."""

    longest: int
    by_reach: ClassVar[bool] = True

    @cached_property
    def part_rows(self) -> list[int]:
        """The number of stretches of each row group."""
        return [self._stretches_of_part(part) for part in range(len(self.users.parts))]

    def _stretches_of_part(self, part: int) -> int:
        counts = self.users.part_positions[part]
        seen = self.users.read_seen(part)
        if seen is None:
            return int(stretches_of(counts, self.longest).sum())
        same_time, starts, begins = seen
        rows, *_ = cut_by_reach(begins, begins + counts, starts, same_time, self.longest)
        return len(rows)


class GroupedLoader(UsersLoader):
    """A :class:`~.users_loader.UsersLoader` whose batches are users x candidates.

    A row is a stretch of a user's consecutive positions; its candidates are their samples, the
    twins before the positive of each. All it promises of rows it promises of stretches: each comes
    once, whatever the ranks. A batch is ``(inputs, labels, weights)``, with U rows, m candidates a
    row, p = m / (negatives_per_positive + 1) positions and S = max_sequence_length + p - 1 places:

    - a user feature [U], a target item feature [U, m];
    - a positive history [U, S], left-padded with 0, oldest first: what any candidate of the row
      may see; a negative history [U, S]: an item drawn for each of the same places;
    - ``history_end`` [U, p], int32, of a positive and its twins: all of them see the
      max_sequence_length places before it that are not padding, never a place at or after it;
    - labels [U, m], weights [U, m], float32: 0 for a filler, where a stretch is shorter than p.

    Args:
        dataset: as of UsersLoader.
        batch_size: rows (stretches) a step on this rank.
        directory: the opened directory of users.
        candidates: m: those of whole positions, see
            :func:`~merlin_sim.dataloader.open_loader.check_candidates`.
        window_rows: rows that are shuffled together, counted in candidates.
        options: of UsersLoader; what stays together is what a row holds.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        directory: DatasetDirectory,
        candidates: int,
        window_rows: int = 65536,
        **options: Any,
    ) -> None:
        """Keep together what a row holds."""
        rows = max(1, window_rows // candidates)
        assert directory.users is not None
        super().__init__(
            dataset,
            batch_size,
            directory=directory,
            positions_together=candidates // directory.users.samples_per_position,
            window_rows=rows,
            **options,
        )
        self.candidates = candidates

    @property
    def samples(self) -> int:
        """Samples of an epoch; rows hold several."""
        counts = self.source.users.part_positions
        return self.source.recipe.of_position * sum(int(of_part.sum()) for of_part in counts)

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
