"""Refused cases again through the real command: exit code 2, a message, and no traceback."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .dataset_family import DatasetFamily
from .kills import MODEL
from .kinds import pick
from .outcome import READ, REFUSED, Outcome
from .plan import Plan
from .raw_logs import NAMES, LogFamily
from .run_process import BIN
from .worker import patience

SECONDS = 120.0
"""For one command, which takes five to ten on a quiet machine."""
MESSAGE = 2
"""The exit code of a refusal."""


class CommandFamily:
    """Cases of the other families, each in a fresh process of the real command."""

    name = "command line"

    def __init__(self) -> None:
        """Choose the families that have a command."""
        self._datasets = {name: DatasetFamily(name) for name in ("parquet", "spec")}
        self._logs = LogFamily()

    def prepare(self) -> None:
        """Nothing is shared: the command imports for itself."""

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw a case of another family."""
        name = pick(random, [*self._datasets, self._logs.name])
        inner = self._datasets.get(name, self._logs).draw(random)
        return Plan({**inner.base, "of": name}, inner.mutations)

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Write the case, and run the command on it."""
        with tempfile.TemporaryDirectory(prefix="attack-") as parent:
            directory = Path(parent)
            if plan.base["of"] == self._logs.name:
                words = self._log_words(plan, directory)
            else:
                (directory / "d").mkdir()
                self._datasets[plan.base["of"]].write(plan, directory / "d")
                words = ["train", "--dataset_dir", str(directory / "d"), *MODEL, "--epochs", "1"]
                words += ["--results_dir", str(directory / "results")]
            phase("command")
            try:
                done = _run(words)
            except subprocess.TimeoutExpired as error:
                return Outcome("hang", str(error)[:300])
            return _judged(done, parent)

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
