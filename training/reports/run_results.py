"""What a results directory tells: the log's steps and epochs, the curves, the facts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ...foundation.exceptions import MerlinSimError
from .published_lines import PREFIX, own_entries

Entry = dict[str, Any]
PLACED = ("step", "epoch")
"""Kinds of entries that are sorted by the number of the same name."""


@dataclass(frozen=True)
class RunResults:
    """One run, as it was left."""

    name: str
    path: Path
    steps: list[Entry]
    """By step; of a step done again after a resume, the last."""
    epochs: list[Entry]
    last: Entry
    """What the run logged at its end; empty for one that has not ended."""
    evaluation: Entry
    """The last evaluation with its curves; empty where there was none."""
    config: Entry
    facts: Entry

    def metric(self, name: str) -> float | None:
        """Return a number of the run's end, or of its last epoch; None where it has none."""
        last_epoch = self.epochs[-1] if self.epochs else {}
        value = self.last.get(name, last_epoch.get(name))
        return None if value is None else float(value)


def read_results(path: Path, log_filename: str | None = None) -> RunResults:
    """Read a results directory.

    Args:
        path: as given to ``merlin-sim train --results_dir``.
        log_filename: the log's name, where the configuration beside it does not tell.

    Raises:
        MerlinSimError: where there is no log, or a line of it is not what a run writes.
    """
    if not path.is_dir():
        raise MerlinSimError(f"{path}: expected a results directory; there is none.")
    config = _read(path / "config.yaml", yaml.safe_load)
    log = path / (log_filename or config.get("log_filename") or "log.json")
    if not log.is_file():
        raise MerlinSimError(f"{path}: expected a log, {log.name}; there is none.")
    entries = _read_log(log)
    ends = [e for e in entries if e["type"] in ("result", "benchmark", "inference")]
    return RunResults(
        name=path.name,
        path=path,
        steps=_last_by("step", "step", entries),
        epochs=_last_by("epoch", "epoch", entries),
        last=ends[-1] if ends else {},
        evaluation=_read(path / "evaluation.json", json.loads),
        config=config,
        facts=_read(path / "run.json", json.loads),
    )


def _read_log(log: Path) -> list[Entry]:
    entries: list[Entry] = []
    published: list[Entry] = []
    try:
        text = log.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError) as error:
        raise MerlinSimError(f"{log}: expected a run's log in UTF-8 ({error}).") from error
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        is_published = line.startswith(PREFIX)
        try:
            entry = json.loads(line.removeprefix(PREFIX))
            own_entries([entry]) if is_published else _check_entry(entry)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if number == len(lines) and not text.endswith("\n"):  # killed while it wrote
                break
            raise MerlinSimError(f"{log}, line {number}: not an entry of a run's log.") from error
        (published if is_published else entries).append(entry)
    return [*entries, *own_entries(published)]


def _check_entry(entry: Entry) -> None:
    """Refuse an entry of ours that does not say where it stands."""
    if entry["type"] in PLACED and type(entry[entry["type"]]) is not int:
        raise ValueError(entry)


def _last_by(kind: str, key: str, entries: list[Entry]) -> list[Entry]:
    found = {entry[key]: entry for entry in entries if entry["type"] == kind}
    return [found[place] for place in sorted(found)]


def _read(path: Path, parse: Any) -> Entry:
    try:
        content = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}
