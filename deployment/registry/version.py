"""One version in a registry: a servable, and the story of it in a file beside."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...foundation.exceptions import MerlinSimError
from ...foundation.json_file import read_json
from ...foundation.own_digest import DIGEST, require_own_digest
from ...serving.servables.manifest import MANIFEST
from ...training.reports.run_results import read_results

FORMAT = 1
METRICS = ("test_auc", "test_log_loss", "test_gauc", "test_calibration_error", "time_to_train")
"""What is kept of a run's end."""


class RegistryError(MerlinSimError):
    """A registry is missing, damaged, or asked for what it does not have."""


@dataclass(frozen=True)
class Version:
    """What is known of a version."""

    number: int
    added: str
    """When, in UTC."""
    model_type: str
    merlin_sim: str
    """The version of the code that exported it."""
    checkpoint: Mapping[str, Any]
    """What the servable's manifest says of it: name, digest, the dataset's fingerprint."""
    servable_sha256: str
    metrics: Mapping[str, float]
    """Of the run that trained it; nothing where none was named."""
    gate: Mapping[str, Any] | None
    """Verdict and reasons of its gate; None where there was none."""

    @classmethod
    def parse(cls, path: Path) -> Version:
        """Read the file beside a version.

        Raises:
            RegistryError: Where it is not what was written.
        """
        document = read_json(path, "JSON, a version of a registry", RegistryError)
        require_own_digest(path, RegistryError)
        try:
            if document.pop("format") != FORMAT:
                raise KeyError("format")
            document.pop(DIGEST)
            return cls(**document)
        except (KeyError, TypeError, AttributeError) as error:
            raise RegistryError(
                f"{path}: expected a version of format {FORMAT}. Received: {error}"
            ) from error

    @property
    def passed(self) -> bool | None:
        """Whether its gate let it pass; None where there was none."""
        return None if self.gate is None else bool(self.gate["passed"])


def now() -> str:
    """Return the time in UTC as it is written down."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def metrics_of(results: Path) -> dict[str, float]:
    """Return what a run measured at its end.

    Raises:
        MerlinSimError: Where there is no run, or it has not ended.
    """
    run = read_results(results)
    if not run.last:
        raise RegistryError(f"{results}: expected a run that has ended; its log has no result.")
    values = {name: run.metric(name) for name in METRICS}
    return {name: value for name, value in values.items() if value is not None}


def gate_of(path: Path, servable_sha256: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Read the verdict of a gate, which must have judged this servable or its checkpoint.

    Args:
        path: Of ``gate.json``.
        servable_sha256: Digest of the servable's manifest.
        manifest: That manifest.

    Raises:
        RegistryError: Where it is not a gate's file, or judged another model.
    """
    document = read_json(path, "JSON, what `merlin-sim gate` wrote", RegistryError)
    require_own_digest(path, RegistryError)
    try:
        candidate = document["candidate"]
        found = {
            "passed": bool(document["passed"]),
            "reasons": list(document["reasons"]),
            "current": document["current"],
            "dataset": document["dataset"],
        }
    except (KeyError, TypeError) as error:
        raise RegistryError(f"{path}: expected what `merlin-sim gate` wrote.") from error
    wanted = manifest["checkpoint"].get("sha256")
    is_this = candidate.get("servable_sha256") == servable_sha256
    if not is_this and (wanted is None or candidate.get("checkpoint_sha256") != wanted):
        raise RegistryError(
            f"{path}: expected the gate of this model. Received: that of "
            f"{json.dumps(candidate.get('path'))}, which is another {MANIFEST} and checkpoint."
        )
    return found
