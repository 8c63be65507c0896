"""Another process in which a damaged file may end, hang or flood whoever reads it.

It is forked from the one that has imported TensorFlow, and runs this file as a program.
"""

import atexit
import contextlib
import os
import resource
import subprocess
import sys
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

SECONDS = 200.0
"""After so long a call counts as hanging; one takes a tenth of a second on a quiet machine."""
ROOM = 6 << 30
"""Bytes of address space that the process may add to what it has when it has imported all."""

_started: list[tuple[Connection, subprocess.Popen[bytes]]] = []


class Lost(Exception):
    """The process ended, or hung."""


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call ``function`` there; Lost where no answer comes."""
    if not _started:
        _started.append(_start())
    connection, _ = _started[0]
    try:
        connection.send((function, arguments))
        if not connection.poll(SECONDS):
            raise TimeoutError
        result, error = connection.recv()
    except (EOFError, OSError) as gone:
        _end()
        raise Lost(f"{function.__name__}: {type(gone).__name__}") from gone
    if error is not None:
        raise error
    return result


def _start() -> tuple[Connection, subprocess.Popen[bytes]]:
    from warm import warm

    words = warm(__file__, *sys.path)
    atexit.register(_end)  # before the process that it is forked from waits for its end
    here, there = Pipe()
    with there:
        return here, subprocess.Popen(words, stdin=there.fileno())


def _end() -> None:
    for connection, process in _started:
        connection.close()
        process.kill()
        process.wait()
    _started.clear()


def main() -> None:
    """Answer calls until nobody is there who calls."""
    sys.path[:0] = sys.argv[1:]
    from attack import feeding  # noqa: F401

    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    calls = Connection(os.dup(0))
    with contextlib.suppress(EOFError):
        while True:
            function, arguments = calls.recv()
            try:
                answer = function(*arguments), None
            except Exception as error:
                traceback.print_exc()
                answer = None, error
            calls.send(answer)


if __name__ == "__main__":
    main()
