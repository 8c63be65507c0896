"""Runs cases in forked processes, so that a crash, a hang or a flood is one case's end only.

A worker imports nothing: it is forked from a process that has imported TensorFlow and run none of
it. It goes through its cases until one kills it; then the next worker goes on behind that case.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import resource
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import connection, get_context
from typing import Any

from .outcome import NO_TRUTH, Outcome

SECONDS = 60.0
"""After so long a case counts as hanging; one takes a tenth of a second on a quiet machine."""

ROOM: int | None = 6 << 30
"""Bytes of address space that a worker may add to what it was born with; None for any."""

PR_SET_PDEATHSIG = 1


def patience(seconds: float) -> float:
    """How long a quiet machine's seconds are on this one now, by its load."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


Work = Callable[[Any, Callable[[str], None]], Any]
"""Takes an item and what to call at each phase; gives what is sent back."""

FORK, SPAWN = "fork", "spawn"
"""How a worker is begun: a copy of this process, or a new one that imports for itself."""


class Worker:
    """One forked process with one item at a time."""

    def __init__(
        self, work: Work, siblings: list[Worker], room: int | None, start: str = FORK
    ) -> None:
        """Begin the process."""
        context: Any = get_context(start)
        self._ours, theirs = context.Pipe()
        # A fork has the other ends of all pipes, and would keep them open.
        others = [self._ours, *(worker._ours for worker in siblings)] if start == FORK else []
        arguments = (work, theirs, others, room)
        self._process = context.Process(target=_serve, args=arguments)
        self._process.start()
        theirs.close()
        self.item: Any = None
        self.began = 0.0
        self._phase = ""

    @property
    def pipe(self) -> connection.Connection:
        return self._ours

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def begin(self, item: Any) -> None:
        self.item, self._phase, self.began = item, "", time.monotonic()
        self._ours.send(item)

    def receive(self) -> Any | None:
        """Take the next message; None where it only told the phase."""
        kind, value = self._ours.recv()
        if kind == "phase":
            self._phase = value
            return None
        return value

    def ended(self, reason: str) -> Outcome:
        """Say how the item ended the process."""
        self._process.join(5)
        if self._phase == "truth" and reason != "hang":
            return Outcome(NO_TRUTH, f"arrow: {reason}")
        return Outcome(reason, f"exit code {self._process.exitcode}, phase {self._phase!r}")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._process.pid:
                os.kill(self._process.pid, signal.SIGKILL)
        self._process.join(10)
        self._ours.close()


def _serve(
    work: Work,
    pipe: connection.Connection,
    others: list[connection.Connection],
    room: int | None,
) -> None:
    for other in others:
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if room is not None:
        with open("/proc/self/statm") as file:
            room += int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        try:
            item = pipe.recv()
        except EOFError:
            os._exit(0)
        pipe.send(("done", work(item, lambda phase: pipe.send(("phase", phase)))))


def run_all(
    work: Work,
    items: Iterable[Any],
    workers: int,
    seconds: float = SECONDS,
    room: int | None = ROOM,
    start: str = FORK,
) -> Iterator[tuple[Any, Any]]:
    """Give each item with what came of it, in the order in which they end."""
    waiting = iter(items)
    running: list[Worker] = []

    def make_worker() -> Worker:
        return Worker(work, running, room, start)

    try:
        for item in itertools.islice(waiting, workers):
            running.append(make_worker())
            running[-1].begin(item)
        while running:
            ready = connection.wait([worker.pipe for worker in running], timeout=1)
            for worker in list(running):
                answer = _answer(worker, worker.pipe in ready, seconds)
                if answer is not None:
                    yield worker.item, answer
                    running.remove(worker)
                    running += _go_on(worker, waiting, make_worker)
    finally:
        for worker in running:
            worker.kill()


def _answer(worker: Worker, is_ready: bool, seconds: float) -> Any | None:
    if is_ready:
        try:
            return worker.receive()
        except (EOFError, ConnectionError):
            return worker.ended("crash")
    if time.monotonic() - worker.began < patience(seconds):
        return None
    worker.kill()
    return worker.ended("hang")


def _go_on(
    worker: Worker, waiting: Iterator[Any], make_worker: Callable[[], Worker]
) -> list[Worker]:
    """Give the worker, or a new one in its place, the next item; nobody where there is no more."""
    for item in waiting:
        if not worker.is_alive():
            worker.kill()
            worker = make_worker()
        worker.begin(item)
        return [worker]
    worker.kill()
    return []
