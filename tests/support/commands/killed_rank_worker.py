"""Runs a command on every rank, one of which kills or stops itself while it writes a checkpoint.

    horovodrun -np N python killed_rank_worker.py RANK STEP EVENT SIGNAL WORD ...

EVENT is what that rank is about to do first with a file of the checkpoint of that step: open,
fsync or os.rename. SIGNAL is what it sends itself then: SIGKILL or SIGSTOP. A rank that is silent
for SILENCE is lost.
"""

from __future__ import annotations

import os
import signal
import sys

from merlin_sim.foundation.ranks import local_rank
from merlin_sim.parallel.ranks import watchdog
from merlin_sim.scripts.main import main

SILENCE = 10.0
"""Seconds after which a rank of which nothing is heard is taken for lost."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def send_before(event: str, step: int, name: str) -> None:
    """Send this process a signal before it does such a thing."""
    unfinished = f".step-{step:010d}."

    def see(found: str, path: object) -> None:
        if found == event and unfinished in str(path):
            os.kill(os.getpid(), signal.Signals[name])

    def watch(found: str, arguments: tuple) -> None:
        if found == "os.rename" or (found == "open" and (arguments[2] or 0) & WRITING):
            see(found, arguments[0])

    fsync = os.fsync

    def seen_fsync(descriptor: int) -> None:
        see("fsync", os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    os.fsync = seen_fsync
    sys.addaudithook(watch)


if __name__ == "__main__":
    watchdog.SILENCE_SECONDS = SILENCE
    if local_rank().rank == int(sys.argv[1]):
        send_before(sys.argv[3], int(sys.argv[2]), sys.argv[4])
    sys.argv[1:] = sys.argv[5:]
    main()
