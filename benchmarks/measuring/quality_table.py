"""What bench_quality.py found, as a table and as plots."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

BASELINES = ("popularity", "trees on counts")


class Outcome(NamedTuple):
    """One training, or one baseline."""

    log: str
    length: int
    model: str
    rate: float
    seed: int
    validation_auc: float
    auc: float
    gauc: float
    seconds: float
    processor_seconds: float | None = None
    """Of the whole command: what else the machine does hardly changes it."""


class Summary(NamedTuple):
    """A model on a log at a length: what its chosen rate gives over the seeds."""

    model: str
    length: int
    rate: float
    aucs: list[float]
    gaucs: list[float]
    processor_seconds: float | None

    @property
    def auc(self) -> float:
        """The mean over seeds."""
        return statistics.fmean(self.aucs)

    @property
    def spread(self) -> float:
        """The standard deviation over seeds; 0 of one."""
        return statistics.stdev(self.aucs) if len(self.aucs) > 1 else 0.0


def summarize(outcomes: Sequence[Outcome], log: str) -> list[Summary]:
    """Sum up each model and length of a log, in the order in which they were run."""
    trials = dict.fromkeys((o.model, o.length) for o in outcomes if o.log == log)
    return [
        _sum_up([o for o in outcomes if (o.log, o.model, o.length) == (log, *t)]) for t in trials
    ]


def _sum_up(trials: Sequence[Outcome]) -> Summary:
    first = [o for o in trials if o.seed == 1]
    rate = max(first, key=lambda outcome: outcome.validation_auc).rate
    chosen = [o for o in trials if o.rate == rate]
    costs = [o.processor_seconds for o in chosen if o.processor_seconds is not None]
    return Summary(
        chosen[0].model,
        chosen[0].length,
        rate,
        [o.auc for o in chosen],
        [o.gauc for o in chosen],
        statistics.fmean(costs) if costs else None,
    )


def print_table(outcomes: Sequence[Outcome], titles: Mapping[str, str]) -> None:
    """Print a table in markdown for each log."""
    for log in dict.fromkeys(outcome.log for outcome in outcomes):
        print(f"\n{titles[log]}\n")
        print("| | length | test AUC | within users | rate | seeds | processor seconds |")
        print("|---|---|---|---|---|---|---|")
        for row in sorted(summarize(outcomes, log), key=lambda row: (row.length, row.auc)):
            spread = f" (sd {row.spread:.4f})" if len(row.aucs) > 1 else ""
            cost = "" if row.processor_seconds is None else f"{row.processor_seconds:.0f}"
            trained = f"{row.rate:g} | {len(row.aucs)} | {cost}" if row.rate else " | | "
            gauc = statistics.fmean(row.gaucs)
            print(
                f"| {row.model} | {row.length} | {row.auc:.4f}{spread} | {gauc:.4f} | {trained} |"
            )


def draw(outcomes: Sequence[Outcome], folder: Path) -> None:
    """Draw of each log the AUC over the length of the history, and over the cost of training.

    A model has one colour in all pictures. Popularity, which knows nothing of a user, is left to
    the table.
    """
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # texts, not curves
    matplotlib.rcParams["svg.hashsalt"] = "quality"  # the same picture of the same numbers
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    models = sorted({outcome.model for outcome in outcomes} - set(BASELINES))
    for log in dict.fromkeys(outcome.log for outcome in outcomes):
        rows = [row for row in summarize(outcomes, log) if row.model != BASELINES[0]]
        figure, (by_length, by_cost) = plt.subplots(
            1, 2, figsize=(12, 4.2), sharey=True, layout="constrained"
        )
        for model in sorted({row.model for row in rows}):
            of_model = sorted((row for row in rows if row.model == model), key=lambda r: r.length)
            style = {"marker": "o", "capsize": 3, "label": model}
            if model in BASELINES:
                style |= {"linestyle": "--", "color": "0.2"}
            else:
                style["color"] = f"C{models.index(model)}"
            aucs, spreads = [r.auc for r in of_model], [r.spread for r in of_model]
            by_length.errorbar([r.length for r in of_model], aucs, spreads, **style)
            measured = [r for r in of_model if r.processor_seconds is not None]
            by_cost.errorbar(
                [r.processor_seconds for r in measured],
                [r.auc for r in measured],
                [r.spread for r in measured],
                **style,
            )
        by_length.set(xscale="log", xlabel="length of the history", ylabel="test AUC", title=log)
        by_length.set_xticks(lengths := sorted({row.length for row in rows}), map(str, lengths))
        by_length.minorticks_off()
        by_cost.set(xlabel="processor seconds of training", title="what it costs")
        by_cost.set_xlim(left=0)
        figure.legend(*by_length.get_legend_handles_labels(), loc="outside right upper")
        figure.savefig(folder / f"quality-{log}.svg", metadata={"Date": None})
        plt.close(figure)
