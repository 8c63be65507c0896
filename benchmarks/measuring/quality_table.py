"""What bench_quality.py found, as tables in markdown."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .auc_of_users import Array, standard_error

ORACLE = "oracle: the probability that made the label"
TREES = "LightGBM"
NOT_RUN = "not run"


class Outcome(NamedTuple):
    """One run: a line of a record."""

    log: str
    length: int
    model: str
    rate: float
    seed: int
    settings: str
    validation_auc: float
    auc: float
    influence: list[int]
    """Of each test user on the AUC, in the order of ids, in millionths."""
    commit: str
    date: str


def read_outcomes(records: Path) -> list[Outcome]:
    """Read the records of a folder."""
    files = sorted(records.glob("*.jsonl"))
    return [Outcome(**json.loads(line)) for file in files for line in file.read_text().splitlines()]


class Summary(NamedTuple):
    """A model on a log at a length: what its chosen rate gives over the seeds."""

    model: str
    rate: float
    aucs: list[float]
    influence: Array
    """[users], the mean over seeds."""

    @property
    def auc(self) -> float:
        """The mean over seeds."""
        return statistics.fmean(self.aucs)

    @property
    def of_seeds(self) -> float:
        """The variance of that mean by seeds; 0 of one."""
        return statistics.variance(self.aucs) / len(self.aucs) if len(self.aucs) > 1 else 0.0

    @property
    def error(self) -> float:
        """The standard error by users and seeds."""
        return float(np.hypot(standard_error(self.influence), np.sqrt(self.of_seeds)))

    def above(self, other: Summary) -> tuple[float, float]:
        """Return the difference to another model on the same users, and its standard error."""
        by_users = standard_error(self.influence - other.influence)
        error = np.sqrt(by_users**2 + self.of_seeds + other.of_seeds)
        return self.auc - other.auc, float(error)


def summarize(outcomes: Sequence[Outcome], log: str, length: int) -> dict[str, Summary]:
    """Sum up each model of a log at a length, by its name."""
    of_log = [o for o in outcomes if (o.log, o.length) == (log, length)]
    names = dict.fromkeys(outcome.model for outcome in of_log)
    return {name: _sum_up([o for o in of_log if o.model == name]) for name in names}


def _sum_up(runs: Sequence[Outcome]) -> Summary:
    first = [run for run in runs if run.seed == 1]
    rate = max(first, key=lambda run: run.validation_auc).rate
    chosen = [run for run in runs if run.rate == rate]
    influence = np.mean([run.influence for run in chosen], axis=0) / 1e6
    return Summary(chosen[0].model, rate, [run.auc for run in chosen], influence)


def log_section(outcomes: Sequence[Outcome], log: str, title: str, models: Sequence[str]) -> str:
    """Write the tables of a log, one for each length that was run."""
    lengths = sorted({outcome.length for outcome in outcomes if outcome.log == log})
    tables = [_table(outcomes, log, length, lengths[0], models) for length in lengths]
    return f"### {title}\n\n" + "\n".join(tables or [f"{NOT_RUN.capitalize()}.\n"])


def _table(
    outcomes: Sequence[Outcome], log: str, length: int, shortest: int, models: Sequence[str]
) -> str:
    found = summarize(outcomes, log, length)
    shorter = summarize(outcomes, log, shortest) if length > shortest else {}
    heads = ["test AUC", "standard error", f"above {TREES}", "rate", "seeds"]
    heads += [f"above length {shortest}"] if shorter else []
    lines = [f"| length {length} | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    for row in sorted(found.values(), key=lambda row: -row.auc):
        cells = [f"{row.auc:.4f}", f"{row.error:.4f}", _above(row, found.get(TREES))]
        cells += [f"{row.rate:g}" if row.rate else "", f"{len(row.aucs)}"]
        cells += [_above(row, shorter.get(row.model))] if shorter else []
        lines.append(f"| {row.model} | {' | '.join(cells)} |")
    missing = [model for model in models if model not in found]
    left = f"\n{NOT_RUN.capitalize()}: {', '.join(missing)}.\n" if missing else ""
    return "\n".join(lines) + f"\n{left}"


def _above(row: Summary, other: Summary | None) -> str:
    if other is None or other.model == row.model and other.aucs == row.aucs:
        return ""
    difference, error = row.above(other)
    return f"{difference:+.4f} ± {error:.4f}"
