"""A directory that appears whole or not at all: written beside its place, then renamed."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .exceptions import MerlinSimError, Stopped

PARTIAL = ".partial"
REPLACED = ".replaced"
"""Ends the name of a directory while another one takes its place."""
LOCK = ".lock"


@contextmanager
def staged_directory(
    target: Path, *, overwrite: bool = False, say: Callable[[str], None] = lambda message: None
) -> Iterator[Path]:
    """Give a directory to write into; it becomes ``target`` when the block ends well.

    The files are written to ``<target>.partial``. An exception removes it; a killed process
    leaves it behind, locked by nobody, and the next run removes it and says so.

    Args:
        target: The directory to make. It may exist if it is empty.
        overwrite: Replace a directory that holds something.
        say: Told, in a sentence, what was found of an earlier run.

    Raises:
        MerlinSimError: Where ``target`` cannot be written, or is being written by another run.
        Stopped: Where Ctrl-C ended the block.
    """
    target = Path(os.path.abspath(target))
    partial = target.with_name(target.name + PARTIAL)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if finish_replacement(target, shutil.rmtree):
            say(f"An earlier run was killed while it replaced {target}; the old one was put back.")
        _check_free(target, overwrite)
        lock = _claim(partial, target, say)
    except OSError as error:
        raise cannot_write(target, error) from error
    try:
        yield partial
        (partial / LOCK).unlink()
        put_in_place(partial, target, _remove)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise cannot_write(error.filename or target, error) from error
    except KeyboardInterrupt as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise Stopped(
            f"{target}: stopped on request (Ctrl-C). No output directory was made."
        ) from error
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        lock.close()


def check_apart(target: Path, sources: Iterable[Path | None]) -> None:
    """Refuse a directory to make that would take the place of what a run reads.

    Raises:
        MerlinSimError: Where ``target`` is one of ``sources``, or one of them lies in it.
    """
    place = Path(os.path.realpath(target))
    for source in filter(None, sources):
        found = Path(os.path.realpath(source))
        if place == found or place in found.parents:
            raise MerlinSimError(
                f"{target}: expected a directory that holds nothing of what is read ({source}), "
                "which would be lost. Name another one."
            )


def cannot_write(path: object, error: OSError) -> MerlinSimError:
    """The error of a write that the system refused (disk full, no permission)."""
    return MerlinSimError(
        f"{path}: {error.strerror or error}. The run was stopped and no output directory was made."
    )


def _check_free(target: Path, overwrite: bool) -> None:
    if target.exists() and not target.is_dir():
        raise MerlinSimError(f"{target}: expected a directory to write, found a file.")
    if target.is_dir() and any(target.iterdir()) and not overwrite:
        raise MerlinSimError(
            f"{target}: the output directory exists and is not empty. "
            "Name another one, or pass --overwrite to replace it."
        )


def _claim(partial: Path, target: Path, say: Callable[[str], None]) -> IO[str]:
    if partial.exists():
        lock = _try_lock(partial, target)
        lock.close()
        shutil.rmtree(partial)
        say(
            f"An earlier run into {target} did not finish; it left no dataset. "
            f"Its partial files in {partial} were removed, this run starts anew."
        )
    partial.mkdir()
    return _try_lock(partial, target)


def _try_lock(partial: Path, target: Path) -> IO[str]:
    lock = open(partial / LOCK, "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise MerlinSimError(
            f"{target}: another run is writing this directory now ({partial} is locked)."
        ) from error
    return lock


def put_in_place(made: Path, target: Path, remove: Callable[[Path], None]) -> None:
    """Rename a directory; the one that stands there has a second name until this one has its own.

    Args:
        made: The directory that is complete.
        target: Its place.
        remove: Removes what had the place, if anything had, by its second name.
    """
    replaced = target.with_name(target.name + REPLACED)
    if target.exists():
        os.rename(target, replaced)
    os.rename(made, target)
    remove(replaced)


def finish_replacement(target: Path, remove: Callable[[Path], None]) -> bool:
    """Finish what a process that was killed in :func:`put_in_place` left.

    Returns:
        Whether the old directory has its place again.
    """
    replaced = target.with_name(target.name + REPLACED)
    if not replaced.exists():
        return False
    if target.exists():
        remove(replaced)
        return False
    os.rename(replaced, target)
    return True


def _remove(replaced: Path) -> None:
    shutil.rmtree(replaced, ignore_errors=True)
