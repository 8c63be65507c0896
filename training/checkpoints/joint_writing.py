"""Checkpoints of which every rank writes what it alone has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ...checkpoints.array_files import WrittenFile, write_arrays
from ...checkpoints.array_part import ArrayPart
from ...checkpoints.checkpoint_store import CheckpointError, CheckpointStore
from ...foundation.ranks import Ranks
from ...ranks import collectives
from .run_state import Array, RunState


def save_together(
    store: CheckpointStore,
    state: RunState,
    metrics: Mapping[str, Array],
    auc_of_held_out: float | None,
    ranks: Ranks,
    report: Callable[[], None] = lambda: None,
) -> None:
    """Save a run of which each rank has parts that no other has; all ranks call this.

    Args:
        store: where to save.
        state: this rank's.
        metrics: the states of metrics in an unfinished epoch, of all ranks.
        auc_of_held_out: see :meth:`~merlin_sim.checkpoints.checkpoint_store.CheckpointStore.save`.
        ranks: the run.
        report: called again and again while this rank writes.

    Raises:
        CheckpointError: on every rank, where one cannot write.
    """
    writing = JointWriting(ranks, report)

    def save() -> None:
        if not ranks.is_first:
            writing.follow(state.own_parts())
            return
        try:
            facts, parts = state.to_checkpoint(metrics)
            store.save(state.position.steps, facts, parts, auc_of_held_out, writing)
        finally:
            writing.call_off()

    collectives.on_every_rank(save, ranks)


class JointWriting:
    """The first rank's writer, which has the other ranks write their files into its directory.

    The directory must be on a file system that all ranks see. While the first rank saves, the
    others call :meth:`follow`.
    """

    def __init__(self, ranks: Ranks, report: Callable[[], None] = lambda: None) -> None:
        """Remember the run, and what hears that this rank goes on writing."""
        self.ranks = ranks
        self.report = report
        self._has_begun = False

    def __call__(self, directory: Path, parts: Iterable[ArrayPart]) -> Sequence[WrittenFile]:
        """Write the first rank's parts; return what all ranks wrote."""
        self._has_begun = True
        collectives.broadcast_object(directory, self.ranks)
        return self._write(directory, parts)

    def call_off(self) -> None:
        """Tell the other ranks that there is nothing to write into, if they have not been told."""
        if not self._has_begun:
            collectives.broadcast_object(None, self.ranks)

    def follow(self, parts: Iterable[ArrayPart]) -> None:
        """Write this rank's parts where the first rank says."""
        directory = collectives.broadcast_object(None, self.ranks)
        if directory is not None:
            self._write(directory, parts)

    def _write(self, directory: Path, parts: Iterable[ArrayPart]) -> list[WrittenFile]:
        written: WrittenFile | str
        try:
            written = write_arrays(directory, parts, self.ranks.rank, self.ranks.size, self.report)
        except OSError as error:
            written = f"rank {self.ranks.rank}: {error.strerror or error}"
        files = collectives.gather_objects(written, self.ranks)
        failures = [file for file in files if isinstance(file, str)]
        if failures:
            raise CheckpointError(f"{directory} cannot be written: {'; '.join(failures)}.")
        return files
