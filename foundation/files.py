"""Files and directories that appear whole or not at all, and JSON files read with clear errors."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .exceptions import MerlinSimError, Stopped

if TYPE_CHECKING:
    import numpy.typing as npt


UNFINISHED = ".unfinished"
"""Ends the name of a file that a task is writing."""
TOO_LITTLE_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The system's errors of a disk, a quota or a limit that is full."""


def write_text_atomically(path: Path, text: str) -> None:
    """Write ``text`` to ``path``, with an error that speaks to the person who runs it.

    Raises:
        MerlinSimError: Where the file cannot be written; what stood there before still stands.
    """
    with writing(path):
        write_replacing(path, text)


def write_replacing(path: Path, text: str) -> None:
    """Write a file that readers see either as it was or as it will be, on the disk.

    Several processes may write it at once, each beside it under a name of its own.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_synced(partial, text)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def open_replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a long file that stands under its name when the block has ended well.

    Until then it is ``<path>.partial``, which a run that ends early leaves behind: in sight, as it
    may be large, and where the next run writes over it. Where the system refuses to write, as on a
    full disk, it is removed. It is not waited for until it is on the disk, as what can be made
    again is not.

    Raises:
        MerlinSimError: Where the file cannot be written.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            yield file
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise cannot_be_written(path, error) from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name a file or directory that the system refuses to write within this block."""
    try:
        yield
    except OSError as error:
        raise cannot_be_written(path, error) from error


def cannot_be_written(path: Path, error: OSError) -> MerlinSimError:
    """The error of a file or directory that the system refuses to write, with what is free."""
    message = f"{path}: cannot be written: {error.strerror or error}"
    if error.errno not in TOO_LITTLE_SPACE:
        return MerlinSimError(message)
    directory = path if path.is_dir() else path.absolute().parent
    found = os.statvfs(directory)
    free = found.f_bavail * found.f_frsize / 2**20
    return MerlinSimError(
        f"{message}. {free:,.1f} MiB are free in {directory}. Make room, or name an output on "
        "another disk."
    )


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a path to write to; the file has its own name when the block has ended well.

    A task may run twice, even at the same time, or be killed: each run writes to a path of its own,
    and ``path`` is a whole file or none. What a killed run leaves beside it,
    :func:`remove_unfinished` removes.
    """
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}{UNFINISHED}")
    try:
        yield unfinished
        os.replace(unfinished, path)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(unfinished)):
            error.filename = str(path)
        raise


def remove_unfinished(directory: Path) -> None:
    """Remove, here and in all directories below, what killed processes left of whole files."""
    for path in directory.rglob(f".*{UNFINISHED}"):
        path.unlink(missing_ok=True)


def copy_directory(source: Path, target: Path) -> None:
    """Copy a directory's files to a new one, and those of all directories below.

    ``shutil.copytree`` gathers errors to one without ``errno``; this raises the system's.
    """
    target.mkdir()
    for path in source.iterdir():
        if path.is_dir():
            copy_directory(path, target / path.name)
        else:
            shutil.copyfile(path, target / path.name)


def write_array(file: IO[bytes], array: npt.NDArray[Any]) -> None:
    """Append an array's elements to a file, as ``ndarray.tofile`` does.

    Where the system refuses, this raises the system's error: numpy's has no ``errno``, so nobody
    can see by it that the disk is full.
    """
    file.write(array.tobytes() if not array.flags.c_contiguous else array.data)


def write_synced(path: Path, text: str) -> None:
    """Write a file and wait until it is on the disk."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Wait until the names in a directory are on the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path, expected: str, error: type[MerlinSimError] = MerlinSimError) -> Any:
    """Read a JSON file.

    >>> read_json(Path("none/manifest.json"), "a servable's manifest, as JSON")
    Traceback (most recent call last):
    ...
    merlin_sim.foundation.exceptions.MerlinSimError: none/manifest.json: cannot be read: No such ...

    Args:
        path: The file.
        expected: What it should be, for messages.
        error: What is raised.

    Raises:
        MerlinSimError: Or ``error``, where the file cannot be read or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise error(
            f"{path}: cannot be read: {problem.strerror}. Expected {expected}."
        ) from problem
    except (ValueError, RecursionError) as problem:
        raise error(f"{path}: expected {expected}: {' '.join(str(problem).split())}") from problem


PARTIAL = ".partial"
REPLACED = ".replaced"
"""Ends the name of a directory while another one replaces it."""
LOCK = ".lock"
NO_SPACE = {errno.ENOSPC: "The disk", errno.EDQUOT: "The disk quota"}
"""What is full, by the number of the system's error."""


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
        say: Called with a sentence on what was found of an earlier run.

    Raises:
        MerlinSimError: Where ``target`` cannot be written, or is being written by another run.
        Stopped: Where Ctrl-C ended the block.
    """
    target = Path(os.path.abspath(target))
    partial = target.with_name(target.name + PARTIAL)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _alone(target, wait=False):
            lock = _claim(partial, target, overwrite, say)
    except OSError as error:
        raise cannot_write(target, error) from error
    with lock:
        try:
            yield partial
            remove_unfinished(partial)
            with _alone(target):
                (partial / LOCK).unlink()
                put_in_place(partial, target, _remove)
        except BaseException as error:
            explained = _explained(error, partial, target)
            _discard(partial, target)
            if explained is error:
                raise
            raise explained from error


def check_apart(target: Path, sources: Iterable[Path | None]) -> None:
    """Refuse a directory to make that would replace what a run reads.

    Raises:
        MerlinSimError: Where ``target`` is one of ``sources``, or one of them lies in it.
    """
    resolved = Path(os.path.realpath(target))
    for source in filter(None, sources):
        found = Path(os.path.realpath(source))
        if resolved == found or resolved in found.parents:
            raise MerlinSimError(
                f"{target}: expected a directory that holds nothing of what is read ({source}), "
                "which would be lost. Name another one."
            )


def cannot_write(path: object, error: OSError) -> MerlinSimError:
    """The error of a write that the system refused (no permission, a file too large)."""
    return MerlinSimError(
        f"{path}: {error.strerror or error}. The run was stopped and no output directory was made."
    )


def _explained(error: BaseException, partial: Path, target: Path) -> BaseException:
    """Make an error that speaks to the person who runs it, if there is more to say."""
    if isinstance(error, KeyboardInterrupt):
        made = "No" if partial.exists() else "The"  # it has its name already
        return Stopped(f"{target}: stopped on request (Ctrl-C). {made} output directory was made.")
    refusal = error if isinstance(error, OSError) else error.__cause__
    if not isinstance(refusal, OSError):
        return error
    if refusal.errno in NO_SPACE:
        return _disk_full(refusal, partial, target)
    return cannot_write(_path_of(refusal) or target, refusal) if refusal is error else error


def _disk_full(error: OSError, partial: Path, target: Path) -> MerlinSimError:
    """The error of a write for which there was no space; to be made before anything is removed."""
    written = sum(_size(path) for path in partial.rglob("*"))
    free = shutil.disk_usage(target.parent).free
    return MerlinSimError(
        f"{_path_of(error) or target}: {os.strerror(error.errno or 0)}. {NO_SPACE[error.errno]} of "
        f"{target.parent} is full: {_mebibytes(free)} MiB are free there, and this run had written "
        f"{_mebibytes(written)} MiB. Make room, or name an output directory on another disk. "
        "The run was stopped and no output directory was made."
    )


def _path_of(error: OSError) -> object:
    """The path that could not be written; that of a copy is the second one."""
    return error.filename2 or error.filename


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # a task on another machine may still write and remove files
        return 0


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:,.1f}"


def _discard(partial: Path, target: Path) -> None:
    """Remove what was written, and put back what :func:`put_in_place` had moved away."""
    try:
        with _alone(target):
            shutil.rmtree(partial, ignore_errors=True)
            finish_replacement(target, _remove)
    except OSError:  # a full disk may have no room for the lock
        shutil.rmtree(partial, ignore_errors=True)


def _check_free(target: Path, overwrite: bool) -> None:
    if target.exists() and not target.is_dir():
        raise MerlinSimError(f"{target}: expected a directory to write, found a file.")
    if target.is_dir() and any(target.iterdir()) and not overwrite:
        raise MerlinSimError(
            f"{target}: the output directory exists and is not empty. "
            "Name another one, or pass --overwrite (`overwrite=True` in Python) to replace it."
        )


@contextmanager
def _alone(target: Path, *, wait: bool = True) -> Iterator[None]:
    """Be the only process that claims, replaces or removes a directory; for a moment only.

    The lock is a file of its own: the one in the partial directory, which says that a run is alive,
    goes with that directory. It is removed in the end, so who opened it meanwhile tries again.
    """
    path = target.with_name(f".{target.name}{LOCK}")
    while True:
        with open(path, "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError as error:
                raise _taken(target, path) from error
            if not _is_at(lock, path):
                continue
            try:
                yield
            finally:
                path.unlink()
            return


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _claim(partial: Path, target: Path, overwrite: bool, say: Callable[[str], None]) -> IO[str]:
    """Make the partial directory, and lock it until the run ends."""
    is_left = partial.exists()
    if is_left:
        _try_lock(partial, target).close()
    if finish_replacement(target, shutil.rmtree):
        say(f"An earlier run was killed while it replaced {target}; the old one was put back.")
    _check_free(target, overwrite)
    if is_left:
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
        raise _taken(target, partial) from error
    return lock


def _taken(target: Path, locked: Path) -> MerlinSimError:
    return MerlinSimError(
        f"{target}: another run is writing this directory now ({locked} is locked)."
    )


def put_in_place(made: Path, target: Path, remove: Callable[[Path], None]) -> None:
    """Rename a directory; the one that stands there has a second name until this one has its own.

    Args:
        made: The directory that is complete.
        target: Its path.
        remove: Removes what was there before, by its second name.
    """
    replaced = target.with_name(target.name + REPLACED)
    if target.exists():
        os.rename(target, replaced)
    os.rename(made, target)
    remove(replaced)


def finish_replacement(target: Path, remove: Callable[[Path], None]) -> bool:
    """Finish what a process that was killed in :func:`put_in_place` left.

    Returns:
        Whether the old directory has its name again.
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
