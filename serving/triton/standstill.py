"""Whether a server that is starting still does something."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import psutil

_LEAST_SECONDS, _LEAST_BYTES = 0.5, 1 << 20


class Standstill:
    """Watches what a process and those that it started compute and read.

    Triton's Python backend and its processes wait for each other in shared memory: on a loaded
    machine both may wait for ever, and nothing ends.

    Args:
        pid: The process.
        work: Tells the seconds computed and the bytes read so far.
        clock: Tells the time, in seconds.
    """

    patience = 60.0
    """Seconds in which next to nothing is done, after which it stands still."""

    def __init__(
        self,
        pid: int,
        work: Callable[[int], tuple[float, int]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to watch."""
        self._pid, self._work, self._clock = pid, work or work_of, clock
        self._done = self._work(pid)
        self._since = clock()

    def lasts(self) -> bool:
        """Tell whether it stands still."""
        seconds, read = self._work(self._pid)
        before, read_before = self._done
        if seconds - before > _LEAST_SECONDS or read - read_before > _LEAST_BYTES:
            self._done, self._since = (seconds, read), self._clock()
        else:  # what a process did that has ended is not counted any more
            self._done = min(seconds, before), min(read, read_before)
        return self._clock() - self._since > self.patience


def work_of(pid: int) -> tuple[float, int]:
    """Add up the seconds computed and the bytes read by a process and those that it started."""
    seconds, read = 0.0, 0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with suppress(psutil.Error):
                times = each.cpu_times()
                seconds += times.user + times.system
                read += each.io_counters().read_bytes
    return seconds, read
