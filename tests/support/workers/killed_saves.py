"""Saves checkpoints in processes that are killed before each call that changes a file system.

    python killed_saves.py DIRECTORY

Process number n works in DIRECTORY/n and is killed before its n-th such call; what it had saved
by then stands in DIRECTORY/n.saved. The last process is not killed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from merlin_sim.parallel.checkpoints.array_files import whole
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore

SAVES = [(1, 0.6), (2, None), (2, 0.9), (3, None), (3, 0.7), (4, 0.8)]
"""Steps and test AUC of each save: steps 2 and 3 are saved twice, 2 is the best."""
CALLS = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
KILLED = 99


def save_all(directory: Path, notes: Path) -> None:
    store = CheckpointStore(directory, keep=1)
    note = os.open(notes, os.O_WRONLY | os.O_CREAT)
    for number, (steps, auc) in enumerate(SAVES, start=1):
        arrays = whole({"w": np.full(50, number, np.float32)})
        store.save(steps, {"number": number, "auc_of": "test"}, arrays, auc)
        os.write(note, b".")


def kill_before(call: int) -> None:
    """End this process before the ``call``-th call that changes a file system."""

    def act(number: int) -> None:
        if number == call:
            os._exit(KILLED)

    before_each_change(act)


def before_each_change(act: Callable[[int], None]) -> None:
    """Call ``act`` with 1, 2 and so on before each call that changes a file system, but the first.

    What ``act`` changes itself does not count. It is for the rest of the process.
    """
    done = -1  # the file of notes is opened first
    acting = False

    def count() -> None:
        nonlocal done, acting
        if acting:
            return
        done += 1
        if done:
            acting = True
            act(done)
            acting = False

    def watch(event: str, arguments: tuple) -> None:
        if event in CALLS or (event == "open" and (arguments[2] or 0) & WRITING):
            count()

    fsync = os.fsync

    def counted_fsync(descriptor: int) -> None:
        count()
        fsync(descriptor)

    os.fsync = counted_fsync
    sys.addaudithook(watch)


def main() -> None:
    directory = Path(sys.argv[1])
    for call in range(1, 1000):
        process = os.fork()
        if process == 0:
            kill_before(call)
            save_all(directory / str(call), directory / f"{call}.saved")
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if code == 0:
            return
        assert code == KILLED, code
    raise AssertionError("no end")


if __name__ == "__main__":
    main()
