"""One run of a study: its options, its directory, its state and its lock."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ...foundation.exceptions import MerlinSimError
from ...foundation.files import write_replacing, write_text_atomically, writing
from ...foundation.settings import shown_value
from ...parallel.checkpoints.checkpoint_store import CheckpointStore
from ...parallel.ranks.run_lock import held_lock
from ...schemas.layout_names import TEST, VALIDATION
from ..evaluation.best_so_far import HOW_TO_VALIDATE
from ..reports.run_results import RunResults, read_results
from ..reports.settings import name_of
from ..run_log import LOG, RUN_METADATA
from .study_file import RANKS, StudyFile

CONFIG = "trial.yaml"
LOCK = "trial.lock"
OUTPUT = "output.txt"
CHECKPOINTS = "checkpoints"
LONGEST_NAME = 80


@dataclass(frozen=True)
class Trial:
    """A run of some values on a dataset with a seed."""

    directory: Path
    dataset: str
    values: Mapping[str, Any]
    seed: int
    options: Mapping[str, Any]
    """All options of the command, by name; None for its default."""
    title: str

    @property
    def ranks(self) -> int:
        """How many processes it has."""
        return int(self.options.get(RANKS) or 1)

    @property
    def config(self) -> dict[str, Any]:
        """What ``--config`` reads."""
        return {n: v for n, v in self.options.items() if v is not None and n != RANKS}

    def results(self) -> RunResults | None:
        """Read its results; None where it has no log yet."""
        if not (self.directory / LOG).is_file():
            return None
        return read_results(self.directory)

    @property
    def is_finished(self) -> bool:
        """Whether it ran to its end."""
        results = self.results()
        return results is not None and bool(results.last)

    @property
    def resume_from(self) -> Path | None:
        """The checkpoints from which it resumes; None where it starts."""
        saved = self.options.get("save_checkpoint_path")
        if saved is None or not (self.directory / LOG).is_file():
            return None
        return Path(saved) if CheckpointStore(Path(saved)).names() else None

    def prepare(self) -> Path:
        """Write its configuration, or refuse a directory of a run with other options."""
        path = self.directory / CONFIG
        config = self.config
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            before = yaml.safe_load(path.read_text()) if path.is_file() else None
            metadata = self.directory / RUN_METADATA
            if before is not None and metadata.is_file():
                before[RANKS] = json.loads(metadata.read_text()).get("ranks")
                config = {**config, RANKS: self.ranks}
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise MerlinSimError(f"{self.directory} cannot be written or read: {error}") from error
        if before is None:
            write_text_atomically(path, yaml.safe_dump(config, sort_keys=False))
        elif before != config:
            names = [n for n in {**before, **config} if before.get(n) != config.get(n)]
            changed = ", ".join(
                f"{name} {before.get(name)} there and {config.get(name)} here" for name in names
            )
            raise MerlinSimError(
                f"{self.directory} holds a run with other options: {changed}. Name another "
                "results_dir for the changed study, or remove that directory."
            )
        return path

    def claimed(self) -> AbstractContextManager[int | None]:
        """Lock the trial for this process; gives the lock, for the run that it starts to inherit.

        None where another process has it. The lock is released when this process and the run that
        it started have ended, killed or not.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        return held_lock(self.directory / LOCK)


def grid_of(study: StudyFile) -> list[dict[str, Any]]:
    """List the settings of a grid, the first option varying slowest; one without values for none.

    >>> grid_of(StudyFile(Path("s"), "s", {}, grid={"a": (1, 2), "b": (3,)}))
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return [
        dict(zip(study.grid, values, strict=True))
        for values in itertools.product(*study.grid.values())
    ]


def folder_of(values: Mapping[str, Any]) -> str:
    """Name the directory of a setting.

    >>> folder_of({"amp": True, "lr": 0.01}), folder_of({})
    ('amp-true_lr-0.01', 'all')
    """
    name = "_".join(f"{key}-{shown_value(value)}" for key, value in values.items()) or "all"
    plain = re.sub(r"[^\w.,-]", "-", name)
    if plain == name and len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()[:8]
    return f"{plain[:LONGEST_NAME]}_{digest}"


COPY = "study.yaml"
SELECT_BY = "select_by"
"""The option that names what a search chooses by, where it is not validation data."""


@dataclass(frozen=True)
class SettledStudy:
    """A study, where it lies, and what its datasets have."""

    file: StudyFile
    root: Path
    with_users: frozenset[str]
    """Datasets whose test rows have a user."""
    with_validation: frozenset[str]
    """Datasets with validation data."""

    def trials(self, values: Mapping[str, Any], folder: str | None = None) -> list[Trial]:
        """List the runs of one setting, in ``folder``: each dataset with each seed."""
        path = self.root / "trials" / (folder or folder_of(values))
        return [
            self._trial(path / f"{dataset}-seed-{seed}", values, dataset, seed)
            for dataset in self.file.datasets
            for seed in self.file.seeds
        ]

    def _trial(self, directory: Path, values: Mapping[str, Any], dataset: str, seed: int) -> Trial:
        study, given = self.file, {**self.file.options, **values}
        options: dict[str, Any] = {
            "dataset_dir": str(study.datasets[dataset]),
            "results_dir": str(directory),
            "seed": seed,
        }
        if dataset in self.with_users and not given.get("benchmark"):
            options["save_scores"] = True
        if study.checkpoints and study.command == "train" and not given.get("benchmark"):
            options |= {"save_checkpoint_path": str(directory / CHECKPOINTS), "keep_checkpoints": 1}
        several = dataset if len(study.datasets) > 1 else ""
        title = ", ".join(filter(None, (several, name_of(values), f"seed {seed}")))
        return Trial(directory, dataset, values, seed, {**options, **given}, title)

    @property
    def grid(self) -> list[tuple[Mapping[str, Any], Sequence[Trial]]]:
        """List all settings of a grid with their runs."""
        return [(values, self.trials(values)) for values in grid_of(self.file)]

    def make(self) -> None:
        """Make the results directory, with the file that the runs are of."""
        with writing(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            write_replacing(self.root / COPY, self.file.path.read_text(encoding="utf-8"))

    @property
    def selected_by(self) -> str:
        """The data by which a search chooses: test data only where the file says so."""
        return TEST if self.file.options.get(SELECT_BY) == TEST else VALIDATION

    def check_search(self) -> None:
        """Refuse a search that has nothing to choose by."""
        chooses_by = self.file.options.get(SELECT_BY)
        if self.file.search is None or chooses_by == TEST:
            return
        if chooses_by == "newest":
            raise MerlinSimError(
                f"{self.file.path}: options.{SELECT_BY}: expected validation or test in a search, "
                "which chooses by one of them. Received: newest."
            )
        missing = [name for name in self.file.datasets if name not in self.with_validation]
        if missing:
            raise MerlinSimError(
                f"{self.file.path}: a search chooses by validation data, and "
                f"{', '.join(missing)} has none. {HOW_TO_VALIDATE} Or let the search choose by "
                f"test data, whose AUC is then no estimate any more: options: "
                f"{{{SELECT_BY}: {TEST}}}."
            )
