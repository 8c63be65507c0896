"""SIGTERM and SIGINT: finish the step, save, and leave with an exit code of their own."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from ...foundation.exceptions import Stopped

EXIT_CODE = Stopped.exit_code
"""EX_TEMPFAIL: the run was stopped on request and can be resumed."""
LAUNCH_RANKS = Path(__file__).with_name("launch_ranks.sh")
"""Starts several ranks, and asks them to stop: horovodrun itself would kill them in seconds."""

SAME = 1.0


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt, as Ctrl-C does; in the main thread."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def signals_wait() -> Iterator[None]:
    """Let SIGTERM and Ctrl-C wait until the block has ended; in the main thread.

    For a block that starts a process: a signal that came just after would leave behind a process
    that is not known yet.
    """
    came: list[int] = []
    before = {name: signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGINT)}
    handled = {name: handler for name, handler in before.items() if handler != signal.SIG_IGN}
    try:
        for name in handled:
            signal.signal(name, lambda number, frame: came.append(number))
        yield
    finally:
        for name, handler in handled.items():
            signal.signal(name, handler)
        for number in came:
            signal.raise_signal(number)


class Interrupted(Stopped):
    """The run was asked to stop, and did so after saving."""


class StopRequest:
    """Notes SIGTERM and SIGINT while it is active.

    A second one ends the process as usual, unless it follows within :data:`SAME` seconds: a
    terminal and a launcher each pass the same Ctrl-C on.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self._before: dict[signal.Signals, object] = {}
        self._first = 0.0

    def __enter__(self) -> StopRequest:
        for name in (signal.SIGTERM, signal.SIGINT):
            self._before[name] = signal.signal(name, self._note)
        return self

    def __exit__(self, *raised: object) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return self.received is not None

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received = signal.Signals(number).name
            self._first = time.monotonic()
        elif time.monotonic() - self._first > SAME:
            self.__exit__()
            signal.raise_signal(signal.Signals(number))
