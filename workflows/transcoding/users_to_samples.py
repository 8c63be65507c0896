"""A dataset with one row per user becomes the one with one row per sample, file for file."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from ...foundation.atomic_write import copy_directory
from ...foundation.progress import Narrator, Silence
from ...foundation.staging import check_apart, staged_directory
from ...schemas.dataset import DatasetDirectory
from ..behaviour.fitted import WORKFLOW_FILE
from ..behaviour.write_samples import write_samples
from ..continuation.newest_rows import HISTORY
from ..vocabularies.vocabulary import CATEGORIES


@dataclass(frozen=True)
class UsersTranscoder:
    """Writes the files that ``preprocess --layout samples`` would have written of the same log."""

    dataset: DatasetDirectory
    narrator: Narrator = field(default_factory=Silence)

    def transcode(self, output: Path, *, overwrite: bool = False) -> dict[str, int]:
        """Make the dataset directory ``output``; it appears whole or not at all.

        Returns:
            Mapping -> the number of its samples.
        """
        source = self.dataset.path
        check_apart(output, [source])
        with staged_directory(output, overwrite=overwrite, say=self.narrator.say) as staged:
            rows = write_samples(self.dataset, staged, self.narrator)
            copy_fitted(source, staged)
        return rows


def copy_fitted(source: Path, staged: Path) -> None:
    """Copy the vocabularies, the fitted workflow and what it keeps of its log."""
    for name in (CATEGORIES, HISTORY):
        if (source / name).is_dir():
            copy_directory(source / name, staged / name)
    if (source / WORKFLOW_FILE).is_file():
        shutil.copy(source / WORKFLOW_FILE, staged / WORKFLOW_FILE)
