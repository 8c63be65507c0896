"""What the models of a server are told: one file, in a folder that only its user can enter."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..limits import Limits
from ..requests.log_settings import LogSettings
from ..scoring.canary import Canary

SETTINGS = "settings.json"


@dataclass(frozen=True)
class ModelSettings:
    """What the models of a server answer by.

    Triton's configuration of a model, which whoever reaches a model may read, says none of it.
    """

    servable: Path
    """The exported model, which has to stay where it is."""
    limits: Limits = field(default_factory=Limits)
    """What a request may ask for."""
    version: int | None = None
    """Named by each answer; None where there are no versions."""
    canary: Canary | None = None
    """A version that some users meet."""
    canary_servable: Path | None = None
    """Its exported model."""
    histories: str | None = None
    """Address of the store that has the histories of events that bring none, password included."""
    log: LogSettings | None = None
    """What is kept of events; None for nothing."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """What models beside the server's own are told."""

    @property
    def number(self) -> int:
        """The version by which Triton has it."""
        return self.version or 1

    def write(self, folder: Path) -> None:
        """Write the file, for this user alone to read."""
        document = asdict(self)
        place = os.open(folder / SETTINGS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(place, "w", encoding="utf-8") as file:
            json.dump(document, file, default=str)

    @classmethod
    def read(cls, folder: Path) -> ModelSettings:
        """Read the file."""
        found: dict[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        log, canary, other = (found.pop(key) for key in ("log", "canary", "canary_servable"))
        if log is not None:
            log = LogSettings(**{**log, "directory": Path(log["directory"])})
        return cls(
            Path(found.pop("servable")),
            Limits(**found.pop("limits")),
            canary=None if canary is None else Canary(*canary),
            canary_servable=None if other is None else Path(other),
            log=log,
            **found,
        )
