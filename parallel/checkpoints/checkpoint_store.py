"""A run's checkpoints: they appear whole or not at all, and at every moment one can be read."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...foundation.files import REPLACED, finish_replacement, put_in_place, sync_directory
from . import BEST, NEWEST
from .array_files import ArrayPart
from .checkpoint_files import (
    CheckpointError,
    SavedCheckpoint,
    Writer,
    read_checkpoint,
    read_checkpoint_metadata,
    write_alone,
    write_checkpoint,
)

__all__ = ["CheckpointError", "CheckpointStore", "SavedCheckpoint"]

AUC = "auc"
"""The key of the metadata by which checkpoints are compared."""
AUC_OF = "auc_of"
"""The key that names the rows of that AUC, a mapping as validation; None: nothing is chosen."""
DAMAGED = "damaged"
"""In place of a mapping, of a checkpoint that cannot be read."""
_NAME = re.compile(r"step-\d{10}")


class CheckpointStore:
    """A directory of checkpoints: the newest ``keep``, and the best by its AUC.

    AUCs of different rows do not compare: the best is found among the checkpoints whose key
    ``auc_of`` is that of the newest.

    Each is a directory ``step-<steps>``, which has another name until it is complete. A lock
    on the directory, which ends with the process that holds it, keeps processes that write and
    processes that read from seeing each other's work half done.
    """

    def __init__(self, directory: Path, keep: int = 3) -> None:
        """Name the directory; nothing is read or written yet."""
        self.directory = directory
        self.keep = keep

    @property
    def is_one_checkpoint(self) -> bool:
        """Whether the directory is called as one checkpoint is, in a directory of them."""
        return _NAME.fullmatch(self.directory.name) is not None

    def save(
        self,
        steps: int,
        metadata: dict[str, Any],
        parts: Iterable[ArrayPart],
        auc: float | None = None,
        write: Writer = write_alone,
    ) -> Path:
        """Write a checkpoint, then remove those that are neither new nor best.

        Those of later steps than this one stay: a damaged one, whose run was resumed from an
        earlier one, or another run's. Where the disk is full, what was there before stays.

        Args:
            steps: done in all; names the checkpoint.
            metadata: what is written besides the arrays.
            parts: the arrays, or what this rank has of them: :func:`~.array_files.whole`.
            auc: of rows that were held out; by it the best one is found.
            write: see :func:`~.checkpoint_files.write_checkpoint`.
        """
        final = self.directory / f"step-{steps:010d}"
        partial = self.directory / f".{final.name}.{os.getpid()}"
        described = {**metadata, "steps": steps, AUC: auc}
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with _locked(self.directory, fcntl.LOCK_EX):
                self._finish_replacements()
                write_checkpoint(partial, described, parts, write)
                put_in_place(partial, final, self._remove_behind)
                self._prune(final.name)
        except CheckpointError:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        except OSError as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise CheckpointError(
                f"no checkpoint could be written to {self.directory}: {error.strerror or error}"
            ) from error
        return final

    def names(self) -> list[str]:
        """Name the complete checkpoints, newest first."""
        if not self.directory.is_dir():
            return []
        found = {path.name.removesuffix(REPLACED) for path in self.directory.iterdir()}
        return sorted(filter(_NAME.fullmatch, found), reverse=True)

    def best(self, mapping: str | None = None) -> str | None:
        """Name the checkpoint with the best AUC, of equal ones the newest.

        The AUC is that of ``mapping``, by default of the newest checkpoint's.
        """
        return next(iter(self.ranking(mapping)), None)

    def ranking(self, mapping: str | None = None) -> list[str]:
        """Name the checkpoints that have an AUC of a mapping, best first; as of :meth:`best`."""
        found = [(name, *self._auc(name)) for name in self.names()]
        readable = [of for _, of, _ in found if of != DAMAGED]
        mapping = mapping or (readable[0] if readable else None)
        rated = [(auc, name) for name, of, auc in found if auc is not None and of == mapping]
        return [name for _, name in sorted(rated, reverse=True)]

    def load(
        self,
        say: Callable[[str], None] = lambda message: None,
        check: Callable[[SavedCheckpoint], None] = lambda checkpoint: None,
        order: Callable[[], Sequence[str]] | None = None,
    ) -> SavedCheckpoint:
        """Read the newest checkpoint that is whole, or the first of an ``order`` of names.

        The lock is held until its files are open, and not while they are compared with their
        digests: a run that saves meanwhile does not wait for that.

        Args:
            say: called with a sentence for each checkpoint that had to be passed over.
            check: raises CheckpointError for a checkpoint that does not say what is needed.
            order: gives names, of which the first that is whole is read; called under the lock.
        """
        named = self.directory.name if self.is_one_checkpoint else None
        store = CheckpointStore(self.directory.parent) if named else self
        if not store.directory.is_dir():
            raise CheckpointError(f"{self.directory} holds no checkpoint: no such directory.")
        tried: set[Path] = set()
        while True:
            with contextlib.ExitStack() as lock:
                lock.enter_context(_locked(store.directory, fcntl.LOCK_SH))
                names = [named] if named else (order or self.names)()
                paths = [p for name in names for p in store._paths(name) if p not in tried]
                if not paths:
                    break
                tried.add(paths[0])
                try:
                    checkpoint = read_checkpoint(paths[0], opened_all=lock.close)
                    check(checkpoint)
                    return checkpoint
                except CheckpointError as error:
                    if named and len(paths) == 1:
                        raise
                    say(f"{error} {'The one before' if order is None else 'Another one'} is taken.")
        raise CheckpointError(f"{self.directory} holds no checkpoint that can be used.")

    def _paths(self, name: str) -> list[Path]:
        paths = [self.directory / name, self.directory / (name + REPLACED)]
        return [path for path in paths if path.exists()] or paths[:1]

    def _auc(self, name: str) -> tuple[str | None, float | None]:
        """Return the mapping by which a checkpoint is judged, and its AUC where it has one."""
        for path in self._paths(name):
            with contextlib.suppress(CheckpointError):
                metadata = read_checkpoint_metadata(path)
                auc, of = metadata.get(AUC), metadata.get(AUC_OF)
                is_number = isinstance(auc, int | float) and math.isfinite(auc)
                return of, auc if is_number and of is not None else None
        return DAMAGED, None

    def _finish_replacements(self) -> None:
        for replaced in self.directory.glob(f"step-*{REPLACED}"):
            finish_replacement(replaced.with_name(replaced.name.removesuffix(REPLACED)), _remove)

    def _remove_behind(self, replaced: Path) -> None:
        """Remove what can be read until then, once the new one's name is on the disk."""
        sync_directory(self.directory)
        _remove(replaced)

    def _prune(self, saved: str) -> None:
        names = self.names()
        earlier = [name for name in names if name <= saved]
        kept = {*earlier[: self.keep], self.best()}
        for name in earlier:
            if name not in kept:
                _remove(self.directory / name)
        for path in self.directory.glob(".step-*"):  # left by runs that were killed
            shutil.rmtree(path, ignore_errors=True)


def _remove(path: Path) -> None:
    """Remove a directory, where that is allowed, so that it is never seen half removed."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}.removed")
    shutil.rmtree(hidden, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.rename(path, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


@contextlib.contextmanager
def _locked(directory: Path, kind: int) -> Iterator[None]:
    """Hold the directory's lock; where a file system has no locks, do without."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise CheckpointError(f"{directory} cannot be read: {error.strerror}.") from error
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)


def choose_checkpoint(
    directory: Path,
    step: str = BEST,
    say: Callable[[str], None] = lambda message: None,
    check: Callable[[SavedCheckpoint], None] = lambda checkpoint: None,
) -> SavedCheckpoint:
    """Read the checkpoint that is asked for, and say which one it is and why.

    Args:
        directory: a run's directory of checkpoints, or one of them, which is then taken.
        step: ``best``: by the AUC that the run kept its best checkpoint by, validation data's as a
            rule, and the newest where the run chose none; ``newest``; or the number of a step.
        say: called with what was chosen, and with what had to be passed over.
        check: raises CheckpointError for a checkpoint that does not say what is needed.
    """
    store = CheckpointStore(directory)
    if step not in (BEST, NEWEST):
        names = [directory.name] if store.is_one_checkpoint else store.names()
        step_name = f"step-{int(step):010d}"
        if step_name not in names:
            steps = ", ".join(str(_steps(name)) for name in reversed(names)) or "none"
            raise CheckpointError(
                f"{directory}: `step` should be {BEST}, {NEWEST} or one of the steps that are "
                f"there ({steps}). Received: {step}"
            )
        store = store if store.is_one_checkpoint else CheckpointStore(directory / step_name)
    if store.is_one_checkpoint:
        return store.load(say, check)
    names, ranked = [], []

    def order() -> list[str]:
        nonlocal names, ranked
        names = store.names()
        ranked = store.ranking() if step == BEST else []
        return [*ranked, *(name for name in names if name not in ranked)]

    checkpoint = store.load(say, check, order)
    say(f"{checkpoint.path}: {_why(checkpoint, ranked, names, step)}")
    return checkpoint


def _steps(name: str) -> int:
    return int(name.removeprefix("step-"))


def _why(checkpoint: SavedCheckpoint, ranked: list[str], names: list[str], step: str) -> str:
    name, newest = checkpoint.path.name[:15], names[0] if names else ""
    if name in ranked:
        of, auc = checkpoint.metadata[AUC_OF], checkpoint.metadata[AUC]
        others = "" if name == newest else f"; the newest is step {_steps(newest)}"
        return f"step {_steps(name)}, the best by AUC of {of} data ({auc:.4f}){others}"
    if step == NEWEST:
        return f"step {_steps(name)}, the newest, as was asked for"
    return f"step {_steps(name)}, the newest: its run chose no best one"
