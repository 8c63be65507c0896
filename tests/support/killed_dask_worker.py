"""A Dask worker that is killed at chosen moments of each phase of a run, once at each."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from distributed import WorkerPlugin

BEFORE, UNNAMED, AFTER = "before a task", "before its file has its name", "after a task"


class KilledWorkers(WorkerPlugin):
    """Sends SIGKILL to its own process.

    Args:
        directory: Has ``phase.json``: the phase's number, the keys of its tasks (None for all),
            and the moments at which a worker is to be killed.
            Gets a file for each time that a worker was killed.
        output: Where the files are whose names are waited for.
    """

    def __init__(self, directory: Path, output: Path) -> None:
        self.directory = directory
        self.output = output

    def setup(self, worker) -> None:
        replace = os.replace

        def killed_before(source, target, **options):
            if self.output in Path(target).parents:
                self._kill(UNNAMED)
            replace(source, target, **options)

        os.replace = killed_before

    def transition(self, key, start, finish, **_) -> None:
        keys = json.loads((self.directory / "phase.json").read_text())["keys"]
        if keys is not None and key not in keys:
            return
        if finish == "executing":
            self._kill(BEFORE)
        elif (start, finish) == ("executing", "memory"):
            self._kill(AFTER)

    def _kill(self, moment: str) -> None:
        reported = json.loads((self.directory / "phase.json").read_text())
        if moment not in reported["moments"]:
            return
        try:
            (self.directory / f"{reported['phase']}, {moment}").touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
