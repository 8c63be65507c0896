"""Whether processes do anything: what waits for ever is told from what has much to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

_LEAST_SECONDS, _LEAST_BYTES = 0.05, 1 << 20
_BUSY = (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)


class Idleness:
    """Watches what processes, and those that they started, compute and read.

    On a machine that has far too much to do a process waits for its turn; it is not idle then.

    Args:
        processes: Names the processes.
        clock: Tells the time, in seconds.
        work: Tells the seconds computed and the bytes read by processes, and whether one of them
            runs or waits for its turn or a disk.
    """

    def __init__(
        self,
        processes: Callable[[], Sequence[int]],
        clock: Callable[[], float] = time.monotonic,
        work: Callable[[Sequence[int]], tuple[float, int, bool]] | None = None,
    ) -> None:
        """Begin to watch."""
        self._processes, self._clock, self._work = processes, clock, work or work_of
        self._done: tuple[float, int] = self._work(processes())[:2]
        self._since = clock()

    def lasted(self, seconds: float) -> bool:
        """Tell whether nothing has been done for so long."""
        computed, read, is_busy = self._work(self._processes())
        before, read_before = self._done
        is_done = computed - before > _LEAST_SECONDS or read - read_before > _LEAST_BYTES
        if is_done or is_busy:
            self._done, self._since = (computed, read), self._clock()
        else:  # what a process did that has ended is not counted any more
            self._done = min(computed, before), min(read, read_before)
        return self._clock() - self._since >= seconds


def work_of(processes: Sequence[int]) -> tuple[float, int, bool]:
    """Add up what processes, and those that they started, computed and read."""
    seconds, read, is_busy = 0.0, 0, False
    for pid in processes:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            for each in [process, *process.children(recursive=True)]:
                with suppress(psutil.Error):
                    times = each.cpu_times()
                    seconds += times.user + times.system
                    read += each.io_counters().read_bytes
                    is_busy |= each.status() in _BUSY
    return seconds, read, is_busy
