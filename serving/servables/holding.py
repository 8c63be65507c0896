"""Exported models that somebody serves: they are held, and what is held is not removed.

A lock of the directory itself says so, which ends with the process that took it, however that
ends. It holds on one machine, and on file systems that have locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from .manifest import ServableError


def hold(servable: Path) -> int:
    """Hold a servable; returns a file descriptor, which lets go of it when it is closed.

    Raises:
        ServableError: Where it is missing, or just being removed.
    """
    try:
        place = os.open(servable, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ServableError(f"{servable}: cannot be opened: {error.strerror}.") from error
    try:
        fcntl.flock(place, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(place)
        raise ServableError(f"{servable}: is being removed.") from None
    except OSError:
        pass  # a file system without locks
    return place


@contextlib.contextmanager
def unless_held(servable: Path) -> Iterator[bool]:
    """Keep others from holding a servable; False where one does already."""
    try:
        place = os.open(servable, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield True  # there is nothing to hold
        return
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    except OSError:
        yield True
    else:
        yield True
    finally:
        os.close(place)
