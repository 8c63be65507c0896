"""What of the requests is kept, as a command is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...foundation.exceptions import MerlinSimError


@dataclass(frozen=True)
class LogSettings:
    """What of the requests is kept."""

    directory: Path
    share: float = 0.01
    """Of the events, drawn at random."""
    most_mib: int = 64
    """Of all files in the directory together."""
    hashes_users: bool = False
    """Whether a hash stands in place of what the user's columns have."""

    def __post_init__(self) -> None:
        """Gather every problem, raise once."""
        problems = []
        if not 0 < self.share <= 1:
            problems.append(f"`log_share` should be above 0 and at most 1. Received: {self.share}")
        if self.most_mib < 1:
            problems.append(f"`log_mib` should be a positive integer. Received: {self.most_mib}")
        if problems:
            raise MerlinSimError("\n".join(problems))

    def make_directory(self) -> None:
        """Make the directory, which only this user can enter.

        Raises:
            MerlinSimError: Where it cannot be made.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise MerlinSimError(
                f"`log_requests`: {self.directory} cannot be made: {error.strerror}"
            ) from error
