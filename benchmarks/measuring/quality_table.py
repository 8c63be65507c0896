"""What bench_quality.py found, as tables in markdown."""

from __future__ import annotations

import json
import statistics
from collections.abc import Collection, Mapping, Sequence
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


def comparison(
    outcomes: Sequence[Outcome], titles: Mapping[str, str], models: Sequence[str]
) -> str:
    """Write what was found on each log of ``titles``, a column for each of its lengths.

    First the AUC, then how far it is above LightGBM, above FuxiCTR's best, and above that of the
    shortest length. ``models`` come in their order, and then what needs no training. How far
    FuxiCTR's are above others is left out: it is what the others are above FuxiCTR's best.
    """
    found, longer = {}, {}
    described = ""
    for log, title in titles.items():
        of_log = [outcome for outcome in outcomes if outcome.log == log]
        described += f"- **{log}**: {title}; {_described(of_log)}.\n"
        lengths = sorted({outcome.length for outcome in of_log})
        for length in lengths:
            rows = found[f"{log}, {length}"] = summarize(of_log, log, length)
            if length > lengths[0]:
                shorter = found[f"{log}, {lengths[0]}"]
                longer[f"{log}, {length} above {lengths[0]}"] = {
                    name: _above(row, shorter.get(name)) for name, row in rows.items()
                }
    every = dict.fromkeys((*models, *(name for rows in found.values() for name in rows)))
    aucs = {h: {n: _auc_and_runs(r) for n, r in rows.items()} for h, rows in found.items()}
    parts = [described, _table("test AUC", aucs, every)]
    missing = _not_run(models, found.values())
    parts += [f"Not run: {'; '.join(missing)}.\n"] if missing else []
    ours = [name for name in models if name not in FUXICTR]
    for title, differences in (
        (f"above {TREES}", _above_best(found, [TREES])),
        ("above FuxiCTR's best", _above_best(found, FUXICTR)),
        ("by length", longer),
    ):
        parts += [_table(title, differences, ours)] if differences else []
    return "\n".join(parts)


def _described(of_log: Sequence[Outcome]) -> str:
    """Say of whose data and which code the runs of a log are."""
    if not of_log:
        return "not run"
    commits = sorted({outcome.commit[:7] for outcome in of_log})
    dates = sorted({outcome.date for outcome in of_log})
    days = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    return f"{len(of_log[0].influence)} users test; commit {', '.join(commits)}; {days}"


Cells = dict[str, dict[str, str]]
"""Head of a column -> model -> what stands there."""


def _table(title: str, columns: Cells, names: Collection[str]) -> str:
    """Write a table with a row for each model that has a cell."""
    lines = [f"| {title} | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    for name in names:
        cells = [cells.get(name, "") for cells in columns.values()]
        if any(cells):
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _auc_and_runs(row: Summary) -> str:
    """Write an AUC, of how many rates it is the best, and of how many seeds it is the mean."""
    runs = f" ({row.rates}, {len(row.aucs)})" if row.rate else ""
    return f"{row.auc:.4f} ± {row.error:.4f}{runs}"


def _above_best(found: dict[str, dict[str, Summary]], others: Collection[str]) -> Cells:
    """Write how far each model is above the best of others, on each log that has one."""
    columns = {}
    for head, rows in found.items():
        best = max((rows[name] for name in others if name in rows), key=_auc, default=None)
        if best is not None:
            columns[head] = {name: _above(row, best) for name, row in rows.items()}
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
    outcomes: Sequence[Outcome], log: str, costs: Record, models: Sequence[str]
) -> str:
    """Write of each model the AUC on a log, and what a thousand scores cost, by length.

    Args:
        outcomes: Of all runs.
        log: Whose AUC is shown.
        costs: The record of bench_costs.py.
        models: Those to choose from.
    """
    lengths = sorted({outcome.length for outcome in outcomes if outcome.log == log})
    found = [summarize(outcomes, log, length) for length in lengths]
    tables = costs["tables"]
    heads = [f"test AUC at {length}" for length in lengths]
    heads += [f"{table['title']}, {table['unit']}" for table in tables]
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    measured = [*found, *(table["values"] for table in tables)]
    for model in (name for name in models if any(name in values for values in measured)):
        cells = [f"{rows[model].auc:.4f}" if model in rows else NOT_RUN for rows in found]
        for values in (table["values"].get(model) for table in tables):
            cells.append(f"{statistics.median(values):.2g}" if values else NOT_RUN)
        lines.append(f"| {model} | {' | '.join(cells)} |")
    missing = _not_run(models, measured)
    left = f"\nNot run: {'; '.join(missing)}.\n" if missing else ""
    return "\n".join(lines) + f"\n{left}"
