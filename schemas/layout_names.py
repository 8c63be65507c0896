"""Names within a dataset directory; those of the published parquet layout, or others instead.

Nothing heavy is imported here: the command line needs them for its help.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from ..foundation.exceptions import MerlinSimError
from . import METADATA_FILE

TRAIN, VALIDATION, TEST = "train", "validation", "test"
"""Mappings: what trains, what a run is judged by while it trains, what tests."""
CATEGORIES, WORKFLOW_FILE = "categories", "workflow.json"
"""The folder of vocabularies, and the fitted workflow; in a servable too."""


@dataclass(frozen=True)
class LayoutNames:
    """Names within the directory; by default the published ones."""

    train: str = TRAIN
    test: str = TEST
    """The directories of parquet files."""
    metadata: str = METADATA_FILE
    """The file of cardinalities."""

    def __post_init__(self) -> None:
        for name in (self.train, self.test, self.metadata):
            path = PurePosixPath(name)
            if not path.parts or path.is_absolute() or ".." in path.parts:
                raise MerlinSimError(
                    "expected the name of something within the dataset directory. Received: "
                    f"{name!r}"
                )
        if PurePosixPath(self.train) == PurePosixPath(self.test):
            raise MerlinSimError(
                "train and test should be directories of their own. Received: "
                f"{self.train!r} for both"
            )

    @property
    def directories(self) -> dict[str, str]:
        """Mapping -> its directory."""
        return {TRAIN: self.train, TEST: self.test}


PUBLISHED = LayoutNames()
