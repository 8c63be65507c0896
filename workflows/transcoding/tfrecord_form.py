"""How a dataset in TFRecord files is laid out; known without TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...foundation.exceptions import MerlinSimError

TFRECORD = "tfrecord"
REMAINDER = "remainder.tfrecord"
"""The published name of the file with the samples that fill no prebatched record."""

PUBLISHED_PARTS = {"train": 8, "test": 4}


@dataclass(frozen=True)
class TfrecordForm:
    """Parts of a mapping, and samples of a record; by default as published."""

    part_counts: Mapping[str, int] = field(default_factory=dict)
    """Mapping -> in how many files its records are; fewer where it has fewer records."""

    prebatch_sizes: Mapping[str, int] = field(default_factory=dict)
    """Mapping -> samples of a record; 0, or none: one, not prebatched."""

    history_length: int | None = None
    """To which length histories are padded; None: to the spec's."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        for mapping, count in self.part_counts.items():
            if count < 1:
                raise MerlinSimError(
                    f"the parts of {mapping} should be a positive integer. Received: {count}"
                )
        for mapping, size in self.prebatch_sizes.items():
            if size < 0:
                raise MerlinSimError(
                    f"the prebatch size of {mapping} should be 0 or more. Received: {size}"
                )

    def parts(self, mapping: str) -> int:
        """Return in how many files a mapping's records are."""
        return self.part_counts.get(mapping, PUBLISHED_PARTS.get(mapping, 4))

    def prebatch_size(self, mapping: str) -> int:
        """Return how many samples a record has; 0: one."""
        return self.prebatch_sizes.get(mapping, 0)
