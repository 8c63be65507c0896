"""What a server should serve at a moment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..scoring.canary import Canary


@dataclass(frozen=True)
class ServedVersion:
    """An exported model, of a registry or by itself."""

    servable: Path
    version: int | None = None
    """Its number in the registry; None where there are no versions."""
    canary: Canary | None = None
    """A version that some users meet."""
    canary_servable: Path | None = None
    """Its exported model."""

    @property
    def number(self) -> int:
        """By which Triton knows it."""
        return self.version or 1

    @property
    def places(self) -> tuple[Path, ...]:
        """Where all that it needs lies."""
        return tuple(path for path in (self.servable, self.canary_servable) if path is not None)

    def __str__(self) -> str:
        """Name the version, and the other one where some users meet it."""
        if self.canary is None:
            return str(self.number)
        return (
            f"{self.number} (version {self.canary.number} for {self.canary.share:g} of the users)"
        )
