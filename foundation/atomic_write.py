"""Files that appear whole or not at all, and waiting until they are on the disk."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .exceptions import MerlinSimError

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
    try:
        write_replacing(path, text)
    except OSError as error:
        raise MerlinSimError(f"{path}: cannot be written: {error.strerror}") from error


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


def cannot_be_written(path: Path, error: OSError) -> MerlinSimError:
    """The error of a file or directory that the system refuses to write, with what is free."""
    message = f"{path}: cannot be written: {error.strerror or error}"
    if error.errno not in TOO_LITTLE_SPACE:
        return MerlinSimError(message)
    directory = path.absolute().parent
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
    can tell from it that the disk is full.
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
