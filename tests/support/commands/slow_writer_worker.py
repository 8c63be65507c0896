"""Runs a command on every rank, the first of which writes slowly, and then hangs.

    horovodrun -np N python slow_writer_worker.py SECONDS WORD ...

Each write to its first checkpoint takes SECONDS, to the second HANGS. A writer of which nothing is
heard for LIMITS is given up, if another rank waits for it: for the last one of a run none does. How
long the first one took is printed.
"""

from __future__ import annotations

import sys
import time

from merlin_sim.parallel.checkpoints import array_files
from merlin_sim.parallel.ranks import watchdog
from merlin_sim.scripts.main import main

LIMITS = (5.0, 2.0)
"""Seconds while the first is written, and the second."""
HANGS = 30.0
"""Seconds that a write to the second takes."""


def slow_down(seconds: float) -> None:
    """Let each write to the first checkpoint's file take a while, and to the second hang."""
    files, slept = [], 0.0

    class Slow(array_files._ReportingFile):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            if len(files) == 1:
                print(f"writes took {slept} seconds", flush=True)
            files.append(self.name)

        def write(self, data):
            nonlocal slept
            is_first = self.name == files[0]
            watchdog.LONG_SECONDS = LIMITS[not is_first]  # not before: first steps take long too
            time.sleep(seconds if is_first else HANGS)
            slept += seconds
            return super().write(data)

    array_files._ReportingFile = Slow


if __name__ == "__main__":
    slow_down(float(sys.argv[1]))
    sys.argv[1:] = sys.argv[2:]
    main()
