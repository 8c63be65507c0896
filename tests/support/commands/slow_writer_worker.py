"""Runs a command on every rank, the first of which writes its first checkpoint slowly.

    horovodrun -np N python slow_writer_worker.py SECONDS LIMIT WORD ...

Each write to its file takes SECONDS; LIMIT are the seconds after which a writer of which
nothing is heard is given up. In the end each rank prints how long its writes took.
"""

from __future__ import annotations

import sys
import time

from merlin_sim.parallel.checkpoints import array_files
from merlin_sim.parallel.ranks import watchdog
from merlin_sim.scripts.main import main

slept = 0.0


def slow_down(seconds: float, limit: float) -> None:
    """Let each write to the first checkpoint's file take a while: no rank waits for the last."""
    files = []

    class Slow(array_files._ReportingFile):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            files.append(self.name)

        def write(self, data):
            global slept
            if self.name == files[0]:
                watchdog.LONG_SECONDS = limit  # not before: the first steps take long too
                time.sleep(seconds)
                slept += seconds
            return super().write(data)

    array_files._ReportingFile = Slow


if __name__ == "__main__":
    slow_down(float(sys.argv[1]), float(sys.argv[2]))
    sys.argv[1:] = sys.argv[3:]
    try:
        main()
    finally:
        print(f"writes took {slept} seconds")
