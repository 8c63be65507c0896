"""Starts the run of a trial in processes of its own, follows its log, and stops it if asked to."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...foundation.exceptions import MerlinSimError
from ...ranks.interruption import signals_wait
from .trial import LOG, OUTPUT, Trial

MERLIN_SIM = "from merlin_sim.scripts.main import main; main()"
LOOK_EVERY = 0.2
"""Seconds between two looks at a run."""
STOPPED_WITHIN = 120.0
"""Seconds that a run has to save and end when it was asked to stop."""
LINES_OF_FAILURE = 15

Epoch = dict[str, Any]


def words_of(trial: Trial, command: str, config: Path) -> list[str]:
    """Return the command that runs a trial, from where it was."""
    words = [sys.executable, "-c", MERLIN_SIM, command, "--config", str(config)]
    if trial.resume_from is not None:
        words += ["--load_checkpoint_path", str(trial.resume_from)]
    if trial.ranks == 1:
        return words
    beside = Path(sys.executable).with_name("horovodrun")
    found = str(beside) if beside.exists() else shutil.which("horovodrun")
    if found is None:
        raise MerlinSimError("a trial of several ranks needs horovodrun; there is none.")
    # Left to find out whether to use MPI, horovodrun imports TensorFlow once more: seconds.
    controller = [] if shutil.which("mpirun") else ["--gloo"]
    ranks = str(trial.ranks)
    return [found, "-np", ranks, "-H", f"localhost:{ranks}", *controller, *words]


class Launched:
    """A run that begins when it is waited for.

    It is in a session of its own: Ctrl-C reaches the study, and the run once, by the study.

    Args:
        trial: what runs.
        words: the command.
        lock: what holds the trial, which the run holds too; so nobody starts it a second time
            where the study was killed and the run was not.
    """

    def __init__(self, trial: Trial, words: Sequence[str], lock: int) -> None:
        """Remember what to start."""
        self.trial = trial
        self._words, self._lock = words, lock
        self._log = EpochsOfLog(trial.directory / LOG)
        self._process: subprocess.Popen[bytes] | None = None

    def wait(self, on_epoch: Callable[[Epoch], bool]) -> int | None:
        """Start it and wait for its end; its exit code, or None where it was told to end early.

        Args:
            on_epoch: hears of each epoch's entry in the log; whether the run should go on.
        """
        try:
            with signals_wait():
                process = self._process = self._start()
            while True:
                code = process.poll()
                if not all(map(on_epoch, self._log.new())) and code is None:
                    self.stop()
                    return None
                if code is not None:
                    return code
                time.sleep(LOOK_EVERY)
        except BaseException:
            self.stop()
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        with open(self.trial.directory / OUTPUT, "ab") as output:
            return subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[self._lock],
            )

    def stop(self) -> None:
        """Let it save and end; end it where it does not."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(STOPPED_WITHIN)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def last_words(self) -> str:
        """Return the end of what it said."""
        text = (self.trial.directory / OUTPUT).read_text(encoding="utf-8", errors="replace")
        said = [line for line in text.splitlines() if line.strip()]
        named = [line for line in said if line.startswith("merlin-sim: ")]
        return "\n".join(named[-1:] or said[-LINES_OF_FAILURE:])


class EpochsOfLog:
    """Reads the epochs that are added to a log."""

    def __init__(self, path: Path) -> None:
        """Begin where it ends now."""
        self._path = path
        self._place = path.stat().st_size if path.exists() else 0

    def new(self) -> list[Epoch]:
        """Return the epochs since the last time."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._place)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._place += len(whole)
        lines = (line for line in whole.splitlines() if b'"type": "epoch"' in line)
        return [json.loads(line) for line in lines]
