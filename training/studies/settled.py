"""What a study says once its file is checked: the runs of a grid, or what a search draws from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...foundation.atomic_write import write_replacing
from ...foundation.exceptions import MerlinSimError
from ..evaluation.best_so_far import VALIDATION
from ..runs.opened_dataset import HOW_TO_VALIDATE
from .study_file import StudyFile
from .trial import Trial, folder_of, grid_of, trials_of

COPY = "study.yaml"
SELECT_BY = "select_by"
"""The option that names what a search chooses by, where it is not validation data."""
TEST = "test"


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
        """The mapping by which a search chooses: test data only where the file asks for them."""
        return TEST if self.file.options.get(SELECT_BY) == TEST else VALIDATION

    def check_search(self) -> None:
        """Refuse a search that has nothing to choose by.

        Raises:
            MerlinSimError: naming the datasets without validation data.
        """
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
                f"{self.file.path}: a search goes by validation data, and {', '.join(missing)} has "
                f"none. {HOW_TO_VALIDATE} Or let the search choose by test data, whose AUC is then "
                f"no estimate any more: options: {{{SELECT_BY}: {TEST}}}."
            )
