"""Sections of a server's page on trained models: versions, the last gate, drift."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...foundation.digest import require_own_digest
from ...foundation.exceptions import MerlinSimError
from ...training.reports.page import Figures, PageTable, Text
from .registry import Registry, Version

FORMAT = 1
DRIFT = "drift.json"
DISTANCES = "distances"
DISTANCES_CAPTION = "How far each feature is from the reference; beyond the dotted line is too far."
MOST_BYTES = 4 << 20
"""Of a file that is shown."""
TRIES = 3


def last_drift(directory: Path) -> list[Text | PageTable | Figures]:
    """Return what the newest report in a directory, which need not be there yet, says."""
    path = directory / DRIFT
    for _ in range(TRIES):
        # It is written last, and removed before another: what stands before and after is whole.
        before = _read(path)
        if before is None:
            break
        figure = _read(directory / f"{DISTANCES}.png")
        try:
            require_own_digest(path)
            when = path.stat().st_mtime
        except FileNotFoundError:
            continue
        if figure is not None and _read(path) == before:
            return _drift_parts(path, before, figure, when)
    return [Text("No report of drift yet, or one that is being written.")]


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            found = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MerlinSimError(f"{path} cannot be read: {error.strerror}") from error
    if len(found) > MOST_BYTES:
        raise MerlinSimError(f"{path}: expected at most {MOST_BYTES >> 20} MiB.")
    return found


def _drift_parts(
    path: Path, text: bytes, figure: bytes, when: float
) -> list[Text | PageTable | Figures]:
    try:
        document = json.loads(text)
        if document["format"] != FORMAT:
            raise KeyError("format")
        names = {side: Path(document[side]["path"]).name for side in ("reference", "new")}
        rows = [_row(found) for found in document["findings"] if found["drifted"]]
        drifted = ", ".join(document["drifted"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MerlinSimError(f"{path}: expected what `merlin-sim drift` wrote: {error}") from error
    written = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(when))
    compared = f"{names['new']} against {names['reference']}, {written}."
    parts: list[Text | PageTable | Figures] = [
        Text(f"Drifted: {drifted}. {compared}" if drifted else f"Nothing has drifted. {compared}")
    ]
    if rows:
        parts.append(PageTable(("Feature", "What", "PSI", "KS", "Too far"), rows))
    return [*parts, Figures({DISTANCES: (figure, DISTANCES_CAPTION)})]


def _row(found: dict[str, Any]) -> list[str]:
    measures = [f"{float(found[name]):.4f}" for name in ("psi", "ks")]
    return [str(found["feature"]), str(found["kind"]), *measures, ", ".join(found["reasons"])]


MOST_VERSIONS = 10
DRIFT_FOLDER = "drift"
"""Where in a registry a report of drift is looked for."""
Parts = list[Text | PageTable | Figures]


def server_sections(
    registry: Path | None, drift: Path | None, canary: int | None
) -> list[tuple[str, Parts]]:
    """Report a registry and a report of drift; what cannot be read has a message instead.

    Without a directory of the report it is looked for in the registry.
    """
    sections: list[tuple[str, Parts]] = []
    if registry is not None:
        sections.append(("Last gate", _or_why_not(registry, lambda: _last_gate(registry))))
        found = _or_why_not(registry, lambda: _versions(Registry(registry), canary))
        sections.append(("Versions", found))
    path = drift or (None if registry is None else registry / DRIFT_FOLDER)
    if path is not None:
        sections.append(("Drift", _or_why_not(path, lambda: last_drift(path))))
    return sections


def _or_why_not(path: Path, parts: Callable[[], Parts]) -> Parts:
    try:
        return parts()
    except (MerlinSimError, OSError) as error:
        # The page shows no paths.
        return [Text(str(error).replace(str(path), path.name))]


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
    verdict_text = Text(f"Version {version.number}: {verdict} ({when}).")
    return [verdict_text, *(Text(f"{reason}.") for reason in reasons)]


def _versions(registry: Registry, canary: int | None) -> Parts:
    current, known = registry.current, registry.versions()
    shown = known[: -MOST_VERSIONS - 1 : -1]
    head = ("Version", "", "Added (UTC)", "Model", "Test AUC", "Gate")
    marks = {canary: "canary", current: "current"}
    rows = [[str(v.number), marks.get(v.number, ""), *_cells(v)] for v in shown]
    older = len(known) - len(shown)
    summary = "None is current." if current is None else f"Version {current} is current."
    more = [Text(f"{older:,} older ones are not shown.")] if older else []
    return [Text(summary), PageTable(head, rows), *more]


def _cells(version: Version) -> list[str]:
    auc = version.metrics.get("test_auc")
    gate = {None: "none", True: "passed", False: "not passed"}[version.passed]
    return [_shown(version.added), version.model_type, "" if auc is None else f"{auc:.4f}", gate]


def _shown(time: str) -> str:
    return time[: len("2026-01-31T12:00")].replace("T", " ")
