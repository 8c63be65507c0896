"""Runs a study: the runs that are left, one at a time, shared with other processes of the study."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...foundation.exceptions import MerlinSimError, Stopped
from ...parallel.ranks.interruption import LAUNCH_RANKS, signals_wait, sigterm_interrupts
from ...schemas.layout_names import VALIDATION
from ..run_log import LOG, whole_lines
from .search import SearchMemory
from .trial import OUTPUT, SettledStudy, Trial

MERLIN_SIM = "from merlin_sim.scripts.main import main; main()"
OF_RANK = re.compile(r"^\[\d+\]<std(out|err)>:")
"""What horovodrun writes before each line of a rank."""
LOOK_EVERY = 0.2
"""Seconds between two looks at a run."""
STOPPED_WITHIN = 120.0
"""Seconds that a run has to save and end when it was asked to stop."""
ENDED_WITHIN = 30.0
"""Seconds that it then has to end without saving, and horovodrun to end its ranks."""
LINES_OF_FAILURE = 15

Epoch = dict[str, Any]


def command_line(trial: Trial, command: str, config: Path) -> list[str]:
    """Return the command that runs a trial or resumes it."""
    line = [sys.executable, "-c", MERLIN_SIM, command, "--config", str(config)]
    if trial.resume_from is not None:
        line += ["--load_checkpoint_path", str(trial.resume_from)]
    if trial.ranks == 1:
        return line
    installed = Path(sys.executable).with_name("horovodrun")
    found = str(installed) if installed.exists() else shutil.which("horovodrun")
    if found is None:
        raise MerlinSimError(
            "a trial of several ranks needs Horovod, which is not installed: "
            "`HOROVOD=1 make setup`."
        )
    # Left to find out whether to use MPI, horovodrun imports TensorFlow once more: seconds.
    controller = [] if shutil.which("mpirun") else ["--gloo"]
    ranks = str(trial.ranks)
    launcher = [found, "-np", ranks, "-H", f"localhost:{ranks}", *controller]
    return ["bash", str(LAUNCH_RANKS), str(len(launcher)), *launcher, *line]


class Launched:
    """A run that begins when it is waited for.

    It is in a session of its own: Ctrl-C reaches the study, and the run once, by the study. It
    holds the lock of the trial too: it is not started a second time where the study was killed and
    the run was not.
    """

    def __init__(self, trial: Trial, line: Sequence[str], lock: int) -> None:
        self.trial = trial
        self._line, self._lock = line, lock
        self._log = EpochsOfLog(trial.directory / LOG)
        self._process: subprocess.Popen[bytes] | None = None

    def wait(self, on_epoch: Callable[[Epoch], bool]) -> int | None:
        """Start it and wait for its end; its exit code, or None where it was ended early.

        ``on_epoch`` is called with each epoch's entry of the log, and says whether the run goes on.
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
                self._line,
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
        for seconds in (STOPPED_WITHIN, ENDED_WITHIN):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                process.wait(seconds)
                return
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def last_output(self) -> str:
        """Return the end of its output, or its error message where there is one."""
        text = (self.trial.directory / OUTPUT).read_text(encoding="utf-8", errors="replace")
        lines = [OF_RANK.sub("", line) for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("merlin-sim: ")]
        return "\n".join(errors[-1:] or lines[-LINES_OF_FAILURE:])


class EpochsOfLog:
    """Reads the epochs that are added to a log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # A run that goes on cuts off what a killed one left after its last line.
        self._offset = whole_lines(path) if path.exists() else 0

    def new(self) -> list[Epoch]:
        """Return the epochs since the last time."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        lines = (line for line in whole.splitlines() if b'"type": "epoch"' in line)
        return [json.loads(line) for line in lines]


WAIT = 1.0
"""Seconds between two looks at whether other processes have ended their runs."""
REPORT_EVERY = 60.0
"""Seconds between two messages about waiting for other processes."""


@dataclass
class StudyRunner:
    """Brings the runs of a study to their end."""

    study: SettledStudy
    say: Callable[[str], None]
    failed: dict[str, str] = field(default_factory=dict)
    """Runs that ended with an error, by title: the end of their output."""
    _failed_trials: set[int] = field(default_factory=set)
    _seconds: list[float] = field(default_factory=list)
    _reported: float = -REPORT_EVERY

    def run(self) -> None:
        """Run what is left; Ctrl-C or SIGTERM ends it after the run in progress has saved."""
        try:
            with sigterm_interrupts():
                if self.study.file.search is None:
                    self._grid()
                else:
                    self._search(SearchMemory(self.study.root, self.study.file.search))
        except KeyboardInterrupt as error:
            raise Stopped(
                f"{self.study.file.path.name}: stopped on request. The same command continues it."
            ) from error

    def _grid(self) -> None:
        # One run of each setting in turn: what slows the machine for a while slows all of them.
        rounds = zip(*(runs for _, runs in self.study.grid), strict=True)
        trials = [trial for turn in rounds for trial in turn]
        left = []
        for trial in trials:
            trial.prepare()  # what cannot be continued is refused before hours of work
            if not trial.is_finished:
                left.append(trial)
        self._say_how_much(len(trials), len(left))
        while left:
            others = []
            for index, trial in enumerate(left):
                if not self._run(trial, len(left) - index, lambda entry: True):
                    others.append(trial)
            self._wait_for_others(len(others))
            left = [trial for trial in others if not trial.is_finished]

    def _say_how_much(self, count: int, left: int, what: str = "runs") -> None:
        done = f", {count - left} of them done" if left < count else ""
        self.say(f"{self.study.file.title}: {count} {what}{done}. Results: {self.study.root}.")

    def _run(self, trial: Trial, left: int, goes_on: Callable[[Epoch], bool]) -> bool:
        """Run a trial unless another process runs it; return whether this one is done with it."""
        with trial.claimed() as lock:
            if lock is None:
                return False
            if not trial.is_finished:
                self._launch(trial, lock, left, goes_on)
        return True

    def _launch(self, trial: Trial, lock: int, left: int, goes_on: Callable[[Epoch], bool]) -> None:
        config = trial.prepare()
        if trial.resume_from is None:
            (trial.directory / LOG).unlink(missing_ok=True)  # it begins anew
        line = command_line(trial, self.study.file.command, config)
        begins = "continues" if trial.resume_from is not None else "starts"
        seconds = left * float(np.mean(self._seconds)) if self._seconds else None
        left_over = "" if seconds is None else f"; about {_duration(seconds)} left"
        self.say(f"{trial.title}: {begins}{left_over}")
        begin = time.monotonic()
        run = Launched(trial, line, lock)
        reported: set[int] = set()

        def on_epoch(entry: Epoch) -> bool:
            if entry["epoch"] not in reported:
                reported.add(entry["epoch"])
                self.say(f"{trial.title}: epoch {entry['epoch']}  {_measured(entry)}")
            return goes_on(entry)

        code = run.wait(on_epoch)
        seconds = time.monotonic() - begin
        if code is None:  # pruned
            return
        if trial.is_finished:
            self._seconds.append(seconds)
            results = trial.results()
            self.say(
                f"{trial.title}: {_measured(results.last if results else {})}  {seconds:.0f} s"
            )
        elif code == Stopped.exit_code:
            raise Stopped(f"{trial.title}: the run was stopped. The same command continues it.")
        else:
            self.failed[trial.title] = run.last_output()
            self.say(f"{trial.title}: failed with {code}: {self.failed[trial.title]}")

    def _wait_for_others(self, count: int) -> None:
        if not count:
            return
        now = time.monotonic()
        if now - self._reported >= REPORT_EVERY:
            self._reported = now
            self.say(f"waiting for {count} runs of another process")
        time.sleep(WAIT)

    def _search(self, memory: SearchMemory) -> None:
        search = self.study.file.search
        assert search is not None
        selected_by = self.study.selected_by
        why = "" if selected_by == VALIDATION else ", as select_by asks"
        self.say(
            f"{self.study.file.title}: the search maximizes the AUC of {selected_by} data{why}."
        )
        ended = len(memory.ended())
        self._say_how_much(search.trials, search.trials - ended, "trials")
        while True:
            number = self._take(memory)
            if number is not None:
                continue
            others = set(memory.begun()) - self._failed_trials
            if not others:
                return
            self._wait_for_others(len(others))

    def _take(self, memory: SearchMemory) -> int | None:
        """Run one trial to its end; None where other processes run all that are left."""
        with contextlib.ExitStack() as held:
            with memory.locked():
                for number in memory.numbers_to_run():
                    if number in self._failed_trials:
                        continue
                    runs = self.study.trials(memory.values(number), search_folder(number))
                    # The first run stands for the trial.
                    lock = held.enter_context(runs[0].claimed())
                    if lock is not None and number in memory.begun():  # it may just have ended
                        break
                else:
                    return None
            assert lock is not None
            self._run_searched(memory, number, runs, lock)
        return number

    def _run_searched(
        self, memory: SearchMemory, number: int, runs: Sequence[Trial], lock: int
    ) -> None:
        key = f"{self.study.selected_by}_auc"
        before: list[float] = []
        left = memory.search.trials - len(memory.ended())
        for trial in runs:
            goes_on = True

            def on_epoch(entry: Epoch, trial: Trial = trial) -> bool:
                nonlocal goes_on
                auc, epochs = entry.get(key), self._epochs(trial)
                if auc is not None and (trial is not runs[-1] or entry["epoch"] < epochs):
                    # Over all runs of the trial, so that trials compare after as many epochs.
                    epoch = runs.index(trial) * epochs + int(entry["epoch"])
                    goes_on = memory.report_epoch(number, epoch, float(np.mean([*before, auc])))
                return goes_on

            trial.prepare()
            # A run may outlive a study that was killed: what it logged alone counts too.
            results = trial.results()
            if results is not None and (results.last or trial.resume_from is not None):
                goes_on = all(map(on_epoch, results.epochs))
            if goes_on and not trial.is_finished:
                self._launch(trial, lock, left * len(runs), on_epoch)
            if not goes_on:
                self.say(f"{trial.title}: pruned, below the median")
                memory.end_early(number)
                return
            auc = self._auc(trial)
            if auc is None:  # it stays begun, so that the next start tries it again
                self._failed_trials.add(number)
                self.failed.setdefault(trial.title, f"no AUC of {self.study.selected_by} data")
                return
            before.append(auc)
        memory.end(number, float(np.mean(before)))

    @staticmethod
    def _epochs(trial: Trial) -> int:
        """Return how many epochs a run that has begun has at most."""
        from ..runs.run_config import RunConfig

        results = trial.results()
        chosen = results.config.get("epochs") if results is not None else None
        return int(chosen or trial.options.get("epochs") or RunConfig.epochs)

    def _auc(self, trial: Trial) -> float | None:
        results = trial.results()
        if results is None or not results.last:
            return None
        if self.study.selected_by == VALIDATION:
            return results.metric(f"best_{VALIDATION}_auc")
        return results.metric("test_auc")


def search_folder(number: int) -> str:
    """Name the directory of a search's trial."""
    return f"trial-{number:04}"


def require_all(runner: StudyRunner) -> None:
    """Refuse to succeed where runs failed."""
    if runner.failed:
        names = "; ".join(runner.failed)
        raise MerlinSimError(
            f"runs that failed, {len(runner.failed)}: {names}. Their output is in output.txt in "
            "their directories."
        )


def _measured(values: Epoch) -> str:
    shown = ("validation_auc", "test_auc", "throughput")
    found = [(name, values[name]) for name in shown if values.get(name) is not None]
    return "  ".join(
        f"{name} {value:,.0f}" if name == "throughput" else f"{name} {value:.4f}"
        for name, value in found
    )


def _duration(seconds: float) -> str:
    """Write a time as a person says it.

    >>> _duration(42.0), _duration(250.0), _duration(9000.0)
    ('42 s', '4 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
