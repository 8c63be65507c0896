"""Content of a results directory: steps and epochs of the log, curves, metadata; its measures."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from ...foundation.exceptions import MerlinSimError
from ..run_log import EVALUATION, LOG, PREFIX, RUN_METADATA, own_entries


class Measure(NamedTuple):
    """One number of a run's end."""

    title: str
    form: str
    """As :func:`format` takes it."""
    more_is_better: bool | None = True
    """None where neither way is."""

    def shown(self, value: float | None) -> str:
        """Write a value; nothing for one that is not there."""
        return "" if value is None else format(value, self.form)


MEASURES = {
    "test_auc": Measure("Test AUC", ".4f"),
    "test_exact_auc": Measure("Test AUC, exact", ".4f"),
    "validation_auc": Measure("Validation AUC", ".4f"),
    "best_validation_auc": Measure("Best validation AUC", ".4f"),
    "best_test_auc": Measure("Test AUC where validation AUC was best", ".4f"),
    "test_gauc": Measure("Test AUC within users", ".4f"),
    "test_log_loss": Measure("Test log loss", ".4f", False),
    "test_calibration_error": Measure("Test calibration error", ".4f", False),
    "train_auc": Measure("Training AUC", ".4f", None),
    "total_loss": Measure("Training loss", ".4f", None),
    "throughput": Measure("Throughput (samples/s)", ",.0f"),
    "latency_mean": Measure("Step latency, mean (ms)", ".1f", False),
    "latency_p99": Measure("Step latency, 99% below (ms)", ".1f", False),
    "time_to_train": Measure("Time to train (s)", ",.1f", False),
    "peak_memory_gib": Measure("Peak memory (GiB)", ".2f", False),
    "peak_gpu_memory_gib": Measure("Peak GPU memory (GiB)", ".2f", False),
}
"""What runs are measured by, by name in the log."""

Entry = dict[str, Any]
NUMBERED = ("step", "epoch")
"""Kinds of entries that are sorted by the number of the same name."""
DRAWN = ("total_loss", "samples/s", "train_auc", "test_auc")
"""What figures show of entries."""


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
    metadata: Entry

    def metric(self, name: str) -> float | None:
        """Return a number of the run's end, or of its last epoch; None where it has none."""
        last_epoch = self.epochs[-1] if self.epochs else {}
        value = self.last.get(name, last_epoch.get(name))
        if value is not None and not isinstance(value, int | float):
            raise MerlinSimError(f"{self.path}: {name}: expected a number, found {value!r:.60}.")
        return None if value is None else float(value)


def read_results(path: Path, log_filename: str | None = None) -> RunResults:
    """Read a results directory."""
    if not path.is_dir():
        raise MerlinSimError(f"{path}: expected a results directory; there is none.")
    config = _read(path / "config.yaml", yaml.safe_load)
    log = path / (log_filename or config.get("log_filename") or LOG)
    if not log.is_file():
        raise MerlinSimError(f"{path}: expected a log, {log.name}; there is none.")
    entries = _read_log(log)
    ends = [e for e in entries if e["type"] in ("result", "benchmark", "inference")]
    return RunResults(
        name=path.name,
        path=path,
        steps=_last_by("step", entries),
        epochs=_last_by("epoch", entries),
        last=ends[-1] if ends else {},
        evaluation=_checked(path / EVALUATION, _is_evaluation),
        config=config,
        metadata=_checked(path / RUN_METADATA, _are_run_metadata),
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
    """Refuse an entry of ours that does not say where it stands, or has no number to draw."""
    is_numbered = entry["type"] not in NUMBERED or type(entry[entry["type"]]) is int
    if not is_numbered or not all(_is_number(entry.get(name, 0.0)) for name in DRAWN):
        raise ValueError(entry)


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, int | float)


def _is_evaluation(found: Entry) -> bool:
    """Whether curves are there as an evaluation writes them, each with its number, or none are."""
    try:
        curve, bins = (np.asarray(found.get(n) or [], np.float64) for n in ("roc", "calibration"))
    except (TypeError, ValueError):
        return False
    has_curve = curve.ndim == 2 and len(curve) == 2 and _is_reported(found, "auc")
    has_bins = bins.ndim == 2 and bins.shape[1] == 3 and _is_reported(found, "calibration_error")
    return (has_curve or not curve.size) and (has_bins or not bins.size)


def _is_reported(found: Entry, name: str) -> bool:
    return isinstance(found.get(name), int | float)


def _are_run_metadata(found: Entry) -> bool:
    return isinstance(found.get("dataset") or {}, dict)


def _checked(path: Path, fits: Callable[[Entry], bool]) -> Entry:
    found = _read(path, json.loads)
    if not fits(found):
        raise MerlinSimError(f"{path}: expected what a run writes, found something else.")
    return found


def _last_by(kind: str, entries: list[Entry]) -> list[Entry]:
    found = {entry[kind]: entry for entry in entries if entry["type"] == kind}
    return [found[number] for number in sorted(found)]


def _read(path: Path, parse: Any) -> Entry:
    try:
        content = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}
