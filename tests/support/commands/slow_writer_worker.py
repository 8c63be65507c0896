"""Runs a command on every rank, the first of which writes its checkpoints slowly.

    horovodrun -np N python slow_writer_worker.py SECONDS LIMIT WORD ...

Each write to a checkpoint's file takes SECONDS; LIMIT are the seconds after which a writer of which
nothing is heard is given up.
"""

from __future__ import annotations

import sys
import time

from merlin_sim.checkpoints import array_files
from merlin_sim.ranks import watchdog
from merlin_sim.scripts.main import main


def slow_down(seconds: float, limit: float) -> None:
    """Let each write to a file of a checkpoint take a while."""

    class Slow(array_files._ReportingFile):
        def write(self, data):
            watchdog.LONG_SECONDS = limit  # not before: the first steps take long too
            time.sleep(seconds)
            return super().write(data)

    array_files._ReportingFile = Slow


if __name__ == "__main__":
    slow_down(float(sys.argv[1]), float(sys.argv[2]))
    sys.argv[1:] = sys.argv[3:]
    main()
