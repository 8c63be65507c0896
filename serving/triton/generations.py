"""The models that a running server is told of, and the next ones, which take their place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

REPOSITORY = "repository"
_MADE = "generations"
Write = Callable[[Path], None]
"""Writes a model repository into a directory."""


class Generations:
    """Model repositories that stand in one place, one after the other.

        FILES/generations/1/events/     what was written, one generation after the other
        FILES/repository/events         a link to the one that counts, changed by one rename

    Triton looks at it from time to time, and never sees a model that is half written.

    Args:
        files: The server's folder.
        models: The names of the models, the same in each generation.
    """

    def __init__(self, files: Path, models: tuple[str, ...]) -> None:
        """Remember the folder; nothing is written yet."""
        self.repository = files / REPOSITORY
        self._made = files / _MADE
        self._models = models
        self._count = 0

    def write(self, write: Write) -> Path:
        """Write the next generation; nobody sees it yet."""
        self._count += 1
        generation = self._made / str(self._count)
        generation.mkdir(parents=True)
        write(generation)
        return generation

    def show(self, generation: Path) -> None:
        """Let a generation be the one that counts, model by model."""
        self.repository.mkdir(exist_ok=True)
        for model in self._models:
            link = self._made / f".{model}.new"
            with suppress(FileNotFoundError):
                link.unlink()
            link.symlink_to(generation / model)
            os.replace(link, self.repository / model)

    @staticmethod
    def remove(generation: Path) -> None:
        """Remove a generation that does not count any more."""
        shutil.rmtree(generation, ignore_errors=True)
