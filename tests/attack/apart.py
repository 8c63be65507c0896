"""Another process in which a damaged file may end, hang or flood whoever reads it."""

import atexit
import contextlib
import os
import resource
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, TimeoutError
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

SECONDS = 200.0
"""After so long a call counts as hanging; one takes a tenth of a second on a quiet machine."""
ROOM = 6 << 30
"""Bytes of address space that the process may add to what it has when it has imported all."""

_pools: list[ProcessPoolExecutor] = []


class Lost(Exception):
    """The process ended, or hung."""


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call ``function`` there; Lost where no answer comes."""
    if not _pools:
        _pools.append(ProcessPoolExecutor(1, get_context("spawn"), _begin))
    try:
        return _pools[0].submit(function, *arguments).result(SECONDS)
    except (BrokenProcessPool, TimeoutError) as error:
        _end()
        raise Lost(f"{function.__name__}: {type(error).__name__}") from error


def _begin() -> None:
    from . import feeding  # noqa: F401

    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@atexit.register
def _end() -> None:
    for pool in _pools:
        for pid in list(pool._processes or ()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        pool.shutdown(wait=True)
    _pools.clear()
