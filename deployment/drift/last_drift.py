"""The report that `drift` wrote last, as it is shown elsewhere."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ...foundation.exceptions import MerlinSimError
from ...foundation.own_digest import require_own_digest
from ...training.reports.page import Figures, Table, Text

FORMAT = 1
DRIFT = "drift.json"
DISTANCES = "distances"
DISTANCES_CAPTION = "How far each feature is from the reference; beyond the dotted line is too far."
MOST_BYTES = 4 << 20
"""Of a file that is shown."""
TRIES = 3


def last_drift(directory: Path) -> list[Text | Table | Figures]:
    """Tell what the newest report in a directory says.

    Args:
        directory: Of `drift --output`; it need not be there yet.

    Raises:
        MerlinSimError: Where what is there is no such report, or was changed.
    """
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
            return _told(path, before, figure, when)
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


def _told(path: Path, text: bytes, figure: bytes, when: float) -> list[Text | Table | Figures]:
    try:
        document = json.loads(text)
        if document["format"] != FORMAT:
            raise KeyError("format")
        names = {side: Path(document[side]["path"]).name for side in ("reference", "new")}
        rows = [_row(found) for found in document["findings"] if found["drifted"]]
        said = ", ".join(document["drifted"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MerlinSimError(f"{path}: expected what `merlin-sim drift` wrote: {error}") from error
    written = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(when))
    compared = f"{names['new']} against {names['reference']}, {written}."
    parts: list[Text | Table | Figures] = [
        Text(f"Drifted: {said}. {compared}" if said else f"Nothing has drifted. {compared}")
    ]
    if rows:
        parts.append(Table(("Feature", "What", "PSI", "KS", "Too far"), rows))
    return [*parts, Figures({DISTANCES: (figure, DISTANCES_CAPTION)})]


def _row(found: dict[str, Any]) -> list[str]:
    measures = [f"{float(found[name]):.4f}" for name in ("psi", "ks")]
    return [str(found["feature"]), str(found["kind"]), *measures, ", ".join(found["reasons"])]
