"""Refused cases again through the real command: exit code 2, a message, and no traceback."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from .datasets.dataset_family import DatasetFamily
from .kinds import pick
from .logs.click_logs import THRESHOLD, ClickLogFamily
from .logs.labelled_logs import LABEL, LabelledLogFamily
from .logs.raw_logs import NAMES, LogFamily
from .outcome import NO_TRUTH, READ, REFUSED, Outcome
from .plan import Plan
from .runs.kills import RUNS
from .runs.run_process import BIN
from .serving.good_servable import good_servable
from .transcoding.chunk_sources import ChunkSourceFamily
from .transcoding.split_binary import SplitBinaryFamily
from .transcoding.transcodes import USERS, TranscodeFamily
from .worker import patience

TRAINED = {"parquet": "samples", "spec": "samples", "users": "users", "clicks": "clicks"}
"""Family of datasets -> the run that trains on them."""
COLUMNS = ["--user_column", NAMES["user"], "--item_column", NAMES["item"]]
COLUMNS += ["--timestamp_column", NAMES["time"], "--item_feature_columns", NAMES["kind"]]
"""The options that name a log's columns."""
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
        self._labelled, self._chunks = LabelledLogFamily(), ChunkSourceFamily()
        self._transcoded = TranscodeFamily()
        others = (self._logs, self._days, self._split, self._labelled, self._chunks)
        others = (*others, self._transcoded)
        self._families = {**self._datasets, **{family.name: family for family in others}}

    def prepare(self) -> None:
        """The command imports for itself; only the good dataset of users is made before."""
        good_servable()

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw a case of another family."""
        name = pick(random, list(self._families))
        inner = self._families[name].draw(random)
        return Plan({**inner.base, "of": name}, inner.mutations)

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Write the case, and run the command on it."""
        with tempfile.TemporaryDirectory(prefix="attack-") as parent:
            directory = Path(parent)
            try:
                words = self._words(plan, directory)
            except (pa.ArrowException, OSError) as error:
                return Outcome(NO_TRUTH, f"arrow writes no such file: {error}")
            phase("command")
            try:
                done = _run(words)
            except subprocess.TimeoutExpired as error:
                return Outcome("hang", str(error)[:300])
            return _judged(done, parent)

    def _words(self, plan: Plan, directory: Path) -> list[str]:
        """Write a case, and give the command for it."""
        of = plan.base["of"]
        if of == self._logs.name:
            return self._log_words(plan, directory)
        if of == self._days.name:
            return self._day_words(plan, directory)
        if of == self._labelled.name:
            return self._labelled_words(plan, directory)
        return self._dataset_words(plan, directory)

    def _dataset_words(self, plan: Plan, directory: Path) -> list[str]:
        of, data = plan.base["of"], directory / "d"
        data.mkdir()
        if of == self._split.name:
            self._split.write(plan, data)
            return ["transcode", "--input", str(data), "--output", str(directory / "dataset")]
        if of == self._transcoded.name:
            self._transcoded.write(plan, data)
            return self._transcode_words(plan, data, directory / "dataset")
        if of == self._chunks.name:  # training brings them to parquet by itself
            self._chunks.write(plan, data)
            run = "samples" if plan.base["form"] == "records of samples" else "clicks"
        else:
            self._datasets[of].write(plan, data)
            run = TRAINED[of]
        words = ["train", "--dataset_dir", str(data), *RUNS[run][2], "--epochs", "1"]
        return [*words, "--results_dir", str(directory / "results")]

    def _transcode_words(self, plan: Plan, data: Path, output: Path) -> list[str]:
        words = ["transcode", "--input", str(data), "--output", str(output)]
        if plan.base["source"] == USERS:
            return words
        names = ("train_parts", "test_parts", "prebatch_train_size", "prebatch_test_size")
        values = (*plan.base["parts"], *plan.base["prebatch"])
        given = zip(names, values, strict=True)
        options = [word for name, value in given for word in (f"--{name}", str(value))]
        return [*words, "--to", "tfrecord", *options]

    def _labelled_words(self, plan: Plan, directory: Path) -> list[str]:
        path = self._labelled.write(plan, directory)
        words = [*self._log_options(plan, directory), *COLUMNS]
        words += ["--label_column", LABEL] if plan.base["labelled"] else []
        for name, value in plan.base["split"].items():
            words += [f"--{name}", str(value)]
        return ["preprocess", "log", *words, str(path)]

    def _log_options(self, plan: Plan, directory: Path) -> list[str]:
        words = ["--output_path", str(directory / "dataset")]
        words += ["--on_bad_rows", "skip" if plan.base["skip"] else "fail"]
        return [*words, "--max_sequence_length", "6", "--shortest_sequence_for_user", "3"]

    def _day_words(self, plan: Plan, directory: Path) -> list[str]:
        days = self._days.write(plan, directory)
        words = ["--criteo_path", str(days), "--output_path", str(directory / "dataset")]
        words += ["--on_bad_rows", "skip" if plan.base["skip"] else "fail"]
        return ["preprocess", "criteo", *words, "--frequency_threshold", str(THRESHOLD)]

    def _log_words(self, plan: Plan, directory: Path) -> list[str]:
        path = self._logs.write(plan, directory)
        words = self._log_options(plan, directory)
        if ".json" in path.name:
            words += ["--amazon_dataset_path", str(directory), "--reviews_file_name", path.name]
            return ["preprocess", "amazon-books", *words]
        return ["preprocess", "log", *words, *COLUMNS, str(path)]


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
