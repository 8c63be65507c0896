"""What a server's page tells of trained models: versions, the last gate, drift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..foundation.exceptions import MerlinSimError
from ..training.reports.page import Figures, Table, Text
from .drift.last_drift import last_drift
from .registry.registry import Registry
from .registry.version import Version

MOST_VERSIONS = 10
DRIFT = "drift"
"""Where in a registry a report of drift is looked for."""
Parts = list[Text | Table | Figures]


def told_of(
    registry: Path | None, drift: Path | None, canary: int | None
) -> list[tuple[str, Parts]]:
    """Tell of a registry and of a report of drift; what cannot be read is said in its place.

    Args:
        registry: Its directory; None where there is none.
        drift: Directory of the report; None for that in the registry.
        canary: The version that some users meet.
    """
    sections: list[tuple[str, Parts]] = []
    if registry is not None:
        sections.append(("Last gate", _or_why_not(registry, lambda: _last_gate(registry))))
        found = _or_why_not(registry, lambda: _versions(Registry(registry), canary))
        sections.append(("Versions", found))
    place = drift or (None if registry is None else registry / DRIFT)
    if place is not None:
        sections.append(("Drift", _or_why_not(place, lambda: last_drift(place))))
    return sections


def _or_why_not(place: Path, tell: Callable[[], Parts]) -> Parts:
    try:
        return tell()
    except (MerlinSimError, OSError) as error:
        # Whoever sees the page need not know where things lie.
        return [Text(str(error).replace(str(place), place.name))]


def _last_gate(registry: Path) -> Parts:
    judged = [version for version in Registry(registry).versions() if version.gate is not None]
    if not judged:
        return [Text("No version has been judged by a gate.")]
    version = judged[-1]
    assert version.gate is not None
    verdict = "passed" if version.passed else "not passed"
    reasons: Sequence[str] = version.gate["reasons"]
    # A version is added right after its gate, which does not say when it was.
    when = f"added {_shown(version.added)} UTC"
    said = Text(f"Version {version.number}: {verdict} ({when}).")
    return [said, *(Text(f"{reason}.") for reason in reasons)]


def _versions(registry: Registry, canary: int | None) -> Parts:
    current, known = registry.current, registry.versions()
    shown = known[: -MOST_VERSIONS - 1 : -1]
    head = ("Version", "", "Added (UTC)", "Model", "Test AUC", "Gate")
    marks = {canary: "canary", current: "current"}
    rows = [[str(v.number), marks.get(v.number, ""), *_facts(v)] for v in shown]
    older = len(known) - len(shown)
    said = "None is current." if current is None else f"Version {current} is current."
    more = [Text(f"{older:,} older ones are not shown.")] if older else []
    return [Text(said), Table(head, rows), *more]


def _facts(version: Version) -> list[str]:
    auc = version.metrics.get("test_auc")
    gate = {None: "none", True: "passed", False: "not passed"}[version.passed]
    return [_shown(version.added), version.model_type, "" if auc is None else f"{auc:.4f}", gate]


def _shown(time: str) -> str:
    return time[: len("2026-01-31T12:00")].replace("T", " ")
