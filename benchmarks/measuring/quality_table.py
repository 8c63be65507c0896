"""What bench_quality.py found, as tables in markdown."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .auc_of_users import Array, standard_error
from .quality_models import FUXICTR, TREES

NOT_RUN = "not run"
Record = dict[str, Any]


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
    rates: int
    """Of how many it is the best by validation data."""
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


Column = tuple[str, Callable[[Summary], str]]
"""Its head, and its cell of a row."""


def summarize(outcomes: Sequence[Outcome], log: str, length: int) -> dict[str, Summary]:
    """Sum up each model of a log at a length, by its name."""
    of_log = [o for o in outcomes if (o.log, o.length) == (log, length)]
    names = dict.fromkeys(outcome.model for outcome in of_log)
    return {name: _sum_up([o for o in of_log if o.model == name]) for name in names}


def _sum_up(runs: Sequence[Outcome]) -> Summary:
    runs = [run for run in runs if run.settings == runs[-1].settings]  # the newest alone
    first = [run for run in runs if run.seed == 1]
    rate = max(first, key=lambda run: run.validation_auc).rate
    chosen = [run for run in runs if run.rate == rate]
    influence = np.mean([run.influence for run in chosen], axis=0) / 1e6
    return Summary(chosen[0].model, rate, len(first), [run.auc for run in chosen], influence)


def log_section(outcomes: Sequence[Outcome], log: str, title: str, models: Sequence[str]) -> str:
    """Write the table of a log, with columns for each length; ``models`` are all there are."""
    of_log = [outcome for outcome in outcomes if outcome.log == log]
    if not of_log:
        return f"### {title}\n\nNot run.\n"
    lengths = sorted({outcome.length for outcome in of_log})
    found = {length: summarize(of_log, log, length) for length in lengths}
    commits = sorted({outcome.commit[:7] for outcome in of_log})
    dates = sorted({outcome.date for outcome in of_log})
    told = f"{len(of_log[0].influence)} users test; commit {', '.join(commits)}; "
    told += f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}.\n"
    missing = _not_run(models, found.values())
    told += f"Not run: {'; '.join(missing)}.\n" if missing else ""
    return "\n".join([f"### {title}\n", told, _table(found)])


def _table(found: dict[int, dict[str, Summary]]) -> str:
    """Write the summaries by length and model, the best AUC first."""
    columns = [
        (rows, *column) for length, rows in found.items() for column in _columns(found, length)
    ]
    lines = [
        f"| | {' | '.join(head for _, head, _ in columns)} |",
        f"|---|{'---:|' * len(columns)}",
    ]
    every = sorted(
        (row for rows in found.values() for row in rows.values()), key=_auc, reverse=True
    )
    for name in dict.fromkeys(row.model for row in every):
        cells = [cell(rows[name]) if name in rows else "" for rows, _, cell in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _columns(found: dict[int, dict[str, Summary]], length: int) -> list[Column]:
    rows, shortest = found[length], min(found)
    columns: list[Column] = [
        (f"test AUC at {length}", lambda row: f"{row.auc:.4f} ± {row.error:.4f}"),
        ("rate, of how many", lambda row: f"{row.rate:g} of {row.rates}" if row.rate else ""),
        ("seeds", lambda row: f"{len(row.aucs)}"),
        (f"above {TREES}", lambda row: _above(row, rows.get(TREES))),
    ]
    others = [rows[name] for name in FUXICTR if name in rows]
    if others:
        best = max(others, key=_auc)
        columns.append(("above FuxiCTR's best", lambda row: _above(row, best)))
    if length > shortest:
        shorter = found[shortest]
        columns.append(
            (f"above length {shortest}", lambda row: _above(row, shorter.get(row.model)))
        )
    return columns


def _not_run(models: Sequence[str], found: Collection[dict[str, Any]]) -> list[str]:
    return [name for name in models if not any(name in rows for rows in found)]


def _auc(row: Summary) -> float:
    return row.auc


def _above(row: Summary, other: Summary | None) -> str:
    if other is None or other is row:
        return ""
    difference, error = row.above(other)
    return f"{difference:+.4f} ± {error:.4f}"


def overview(outcomes: Sequence[Outcome], logs: Sequence[str], models: Sequence[str]) -> str:
    """Write the AUC of each model that was run, a column a log, at its shortest length."""
    columns = []
    for log in logs:
        lengths = [outcome.length for outcome in outcomes if outcome.log == log]
        columns.append(summarize(outcomes, log, min(lengths, default=0)))
    lines = [f"| test AUC | {' | '.join(logs)} |", f"|---|{'---:|' * len(logs)}"]
    for model in models:
        cells = [f"{rows[model].auc:.3f}" if model in rows else NOT_RUN for rows in columns]
        if {*cells} != {NOT_RUN}:
            lines.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def choosing_table(
    outcomes: Sequence[Outcome], log: str, costs: Record | None, models: Sequence[str]
) -> str:
    """Write of each model the AUC on a log, and what a thousand scores cost, by length.

    Args:
        outcomes: Of all runs.
        log: Whose AUC is shown.
        costs: The record of bench_costs.py, None where there is none.
        models: Those to choose from.
    """
    lengths = sorted({outcome.length for outcome in outcomes if outcome.log == log})
    found = [summarize(outcomes, log, length) for length in lengths]
    tables = [] if costs is None else costs["tables"]
    heads = [f"test AUC at {length}" for length in lengths]
    heads += [f"{table['title']}, {table['unit']}" for table in tables]
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    measured = [*found, *(table["values"] for table in tables)]
    for model in (name for name in models if any(name in values for values in measured)):
        cells = [f"{rows[model].auc:.4f}" if model in rows else NOT_RUN for rows in found]
        for values in (table["values"].get(model) for table in tables):
            cells.append(f"{statistics.median(values):.2f}" if values else NOT_RUN)
        lines.append(f"| {model} | {' | '.join(cells)} |")
    missing = _not_run(models, measured) + ([] if tables else ["cost and memory"])
    left = f"\nNot run: {'; '.join(missing)}.\n" if missing else ""
    return "\n".join(lines) + f"\n{left}"
