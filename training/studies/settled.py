"""What a study says once its file is checked: the runs of a grid, or what a search draws from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...foundation.atomic_write import write_replacing
from ...foundation.exceptions import MerlinSimError
from ..evaluation.best_so_far import VALIDATION
from .study_file import StudyFile
from .trial import Trial, folder_of, grid_of, trials_of

COPY = "study.yaml"


@dataclass(frozen=True)
class SettledStudy:
    """A study, where it lies, and what its datasets have."""

    file: StudyFile
    root: Path
    """Its results directory."""
    with_users: frozenset[str]
    """Datasets whose test rows are told apart by users."""
    with_validation: frozenset[str]
    """Datasets with validation data."""

    def trials(self, values: Mapping[str, Any], folder: str | None = None) -> list[Trial]:
        """List the runs of one setting."""
        return trials_of(self.file, self.root, values, folder or folder_of(values), self.with_users)

    @property
    def grid(self) -> list[tuple[Mapping[str, Any], Sequence[Trial]]]:
        """List all settings of a grid with their runs."""
        return [(values, self.trials(values)) for values in grid_of(self.file)]

    def make(self) -> None:
        """Make the results directory, with the file that the runs are of.

        Raises:
            MerlinSimError: where it cannot be made.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            write_replacing(self.root / COPY, self.file.path.read_text(encoding="utf-8"))
        except OSError as error:
            raise MerlinSimError(f"{self.root} cannot be written: {error.strerror}") from error

    @property
    def goes_by(self) -> str:
        """The mapping by which a search chooses: validation data where all datasets have them."""
        return VALIDATION if self.with_validation == set(self.file.datasets) else "test"
