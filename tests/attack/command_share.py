"""Refused cases again through the real command: exit code 2, a message, and no traceback."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .click_logs import THRESHOLD, ClickLogFamily
from .dataset_family import DatasetFamily
from .kills import RUNS
from .kinds import pick
from .outcome import READ, REFUSED, Outcome
from .plan import Plan
from .raw_logs import NAMES, LogFamily
from .run_process import BIN
from .split_binary import SplitBinaryFamily
from .worker import patience

TRAINED = {"parquet": "samples", "spec": "samples", "users": "users", "clicks": "clicks"}
"""Family of datasets -> the run that trains on them."""
SECONDS = 120.0
"""For one command, which takes five to ten on a quiet machine."""
MESSAGE = 2
"""The exit code of a refusal."""


class CommandFamily:
    """Cases of the other families, each in a fresh process of the real command."""

    name = "command line"

    def __init__(self) -> None:
        """Choose the families that have a command."""
        self._datasets = {name: DatasetFamily(name) for name in TRAINED}
        self._logs, self._days, self._split = LogFamily(), ClickLogFamily(), SplitBinaryFamily()
        others = (self._logs, self._days, self._split)
        self._families = {**self._datasets, **{family.name: family for family in others}}

    def prepare(self) -> None:
        """Nothing is shared: the command imports for itself."""

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw a case of another family."""
        name = pick(random, list(self._families))
        inner = self._families[name].draw(random)
        return Plan({**inner.base, "of": name}, inner.mutations)

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Write the case, and run the command on it."""
        with tempfile.TemporaryDirectory(prefix="attack-") as parent:
            directory = Path(parent)
            of = plan.base["of"]
            if of == self._logs.name:
                words = self._log_words(plan, directory)
            elif of == self._days.name:
                words = self._day_words(plan, directory)
            else:
                words = self._dataset_words(plan, directory)
            phase("command")
            try:
                done = _run(words)
            except subprocess.TimeoutExpired as error:
                return Outcome("hang", str(error)[:300])
            return _judged(done, parent)

    def _dataset_words(self, plan: Plan, directory: Path) -> list[str]:
        of, data = plan.base["of"], directory / "d"
        data.mkdir()
        if of == self._split.name:
            self._split.write(plan, data)
            return ["transcode", "--input", str(data), "--output", str(directory / "dataset")]
        self._datasets[of].write(plan, data)
        words = ["train", "--dataset_dir", str(data), *RUNS[TRAINED[of]][2], "--epochs", "1"]
        return [*words, "--results_dir", str(directory / "results")]

    def _day_words(self, plan: Plan, directory: Path) -> list[str]:
        days = self._days.write(plan, directory)
        words = ["--criteo_path", str(days), "--output_path", str(directory / "dataset")]
        words += ["--on_bad_rows", "skip" if plan.base["skip"] else "fail"]
        return ["preprocess", "criteo", *words, "--frequency_threshold", str(THRESHOLD)]

    def _log_words(self, plan: Plan, directory: Path) -> list[str]:
        path = self._logs.write(plan, directory)
        words = ["--output_path", str(directory / "dataset")]
        words += ["--on_bad_rows", "skip" if plan.base["skip"] else "fail"]
        words += ["--max_sequence_length", "6", "--shortest_sequence_for_user", "3"]
        if ".json" in path.name:
            words += ["--amazon_dataset_path", str(directory), "--reviews_file_name", path.name]
            return ["preprocess", "amazon-books", *words]
        words += ["--user_column", NAMES["user"], "--item_column", NAMES["item"]]
        words += ["--timestamp_column", NAMES["time"], "--item_feature_columns", NAMES["kind"]]
        return ["preprocess", "log", *words, str(path)]


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / "merlin-sim"), *words],
        env=dict(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=patience(SECONDS),
        check=False,
    )


def _judged(done: subprocess.CompletedProcess[str], parent: str) -> Outcome:
    said = (done.stdout + done.stderr)[-400:]
    for sign in ("Traceback (most recent call last)", "Exception ignored in"):
        if sign in done.stdout + done.stderr:
            return Outcome("traceback", said)
    if done.returncode == 0:
        return Outcome(READ)
    if done.returncode != MESSAGE:
        return Outcome(f"exit code {done.returncode}", said)
    named = parent in done.stderr or "No user has" in done.stderr
    return Outcome(REFUSED if named else "refused without a file", said)
