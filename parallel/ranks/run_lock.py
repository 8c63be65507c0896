"""One run at a time in a directory: a lock that ends with the processes that hold it.

The system lets go of a lock when the processes that hold it are gone, however they went, so that a
killed run blocks no other. The lock's file stays, and says who holds it or held it last.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from ...foundation.exceptions import MerlinSimError

RUN_LOCK = "run.lock"
"""The lock of a run, in each directory that it writes."""
ATTEMPTS = 20
"""How often a lock is asked for: another run may look at it for a moment."""
PAUSE_SECONDS = 0.05


@contextlib.contextmanager
def held_lock(path: Path, attempts: int = 1) -> Iterator[int | None]:
    """Hold a lock file, and note in it who holds it; ask for it so many times.

    Yields:
        The descriptor, which child processes may inherit to hold the lock as well; None where
        another process has the lock. Where a file system has no locks, it is as if it were held.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _try(descriptor, fcntl.LOCK_EX, attempts):
            yield None
            return
        note = {"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(note).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def check_free(directories: Iterable[Path]) -> None:
    """Refuse directories in which another run is at work; any number of ranks may ask at once."""
    for directory in directories:
        with contextlib.suppress(
            OSError
        ):  # no lock file, or none that can be read: it has no owner
            descriptor = os.open(directory / RUN_LOCK, os.O_RDONLY)
            try:
                is_free = _try(descriptor, fcntl.LOCK_SH, ATTEMPTS)
            finally:
                os.close(descriptor)
            if not is_free:
                raise _taken(directory)


@contextlib.contextmanager
def run_in(directories: Iterable[Path]) -> Iterator[None]:
    """Hold the directories that a run writes, until the block ends; its first rank calls this.

    A directory that cannot be written is passed over: what writes into it reports why.
    """
    with contextlib.ExitStack() as held:
        for directory in dict.fromkeys(map(os.path.realpath, directories)):
            with contextlib.suppress(OSError):
                Path(directory).mkdir(parents=True, exist_ok=True)
                lock = held.enter_context(held_lock(Path(directory) / RUN_LOCK, ATTEMPTS))
                if lock is None:
                    raise _taken(Path(directory))
        yield


def _try(descriptor: int, kind: int, attempts: int) -> bool:
    for attempt in range(attempts):
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt + 1 < attempts:
                time.sleep(PAUSE_SECONDS)
            continue
        except OSError:  # the file system has no locks
            pass
        return True
    return False


def _taken(directory: Path) -> MerlinSimError:
    return MerlinSimError(
        f"{directory}: expected a directory in which no other run is at work. Received: one in "
        f"which {_holder(directory / RUN_LOCK)} is. Wait for its end, or name another directory."
    )


def _holder(path: Path) -> str:
    """Say which process holds a lock, by what it noted."""
    try:
        note = json.loads(path.read_text())
        return f"process {note['pid']} on {note['host']}, since {note['since']},"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
