"""Figures of runs: loss and AUC over time, ROC, calibration, throughput; several side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot as plt

from ...foundation.settings import shown_value
from .settings import RunGroup

matplotlib.use("Agg")


from .run_results import MEASURES, RunResults  # noqa: E402

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999")
"""Okabe and Ito's, which people with any colour vision tell apart."""
SMOOTHED_POINTS = 200


def draw(runs: list[RunResults]) -> dict[str, Any]:
    """Draw every figure for which some run has data; by file name."""
    drawings: dict[str, tuple[str, Callable[[Any, RunResults, str], bool]]] = {
        "loss": ("Training loss", draw_loss),
        "auc": ("AUC by epoch", draw_auc),
        "roc": ("ROC on the test data", draw_roc),
        "calibration": ("Calibration on the test data", draw_calibration),
        "throughput": ("Throughput", draw_throughput),
    }
    figures = {}
    for name, (title, drawing) in drawings.items():
        figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
        drawn = [drawing(axes, run, COLORS[index % len(COLORS)]) for index, run in enumerate(runs)]
        if any(drawn):
            _finish(axes, title)
            axes.legend(fontsize=8, frameon=False)
            figures[name] = figure
        else:
            plt.close(figure)
    return figures


def smooth(values: list[float]) -> tuple[Any, Any]:
    """Average runs of steps so that about 200 points are left: (middles, means).

    >>> middles, means = smooth([float(v) for v in range(400)])
    >>> len(means), means[:2].tolist()
    (200, [0.5, 2.5])
    """
    width = max(1, len(values) // SMOOTHED_POINTS)
    parts = np.array_split(np.asarray(values), max(1, len(values) // width))
    means = np.array([part.mean() for part in parts])
    lengths = np.array([len(part) for part in parts])
    return np.cumsum(lengths) - (lengths - 1) / 2, means


def draw_loss(axes: Any, run: RunResults, color: str) -> bool:
    """Draw the total loss over steps."""
    steps = [entry for entry in run.steps if entry.get("total_loss") is not None]
    if not steps:
        return False
    middles, means = smooth([entry["total_loss"] for entry in steps])
    numbers = np.array([entry["step"] for entry in steps])
    x = numbers[np.clip(middles.astype(int) - 1, 0, len(numbers) - 1)]
    axes.plot(x, means, color=color, label=run.name)
    axes.set(xlabel="step", ylabel="total loss")
    return True


def draw_auc(axes: Any, run: RunResults, color: str) -> bool:
    """Draw training and test AUC after each epoch."""
    drawn = False
    for key, style in (("test_auc", "-"), ("train_auc", ":")):
        points = [(e["epoch"], e[key]) for e in run.epochs if e.get(key) is not None]
        if points:
            label = f"{run.name}, {key.split('_')[0]}"
            axes.plot(*zip(*points, strict=True), style, marker="o", color=color, label=label)
            drawn = True
    axes.set(xlabel="epoch", ylabel="AUC")
    axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True))
    return drawn


def draw_roc(axes: Any, run: RunResults, color: str) -> bool:
    """Draw the ROC curve of the last evaluation."""
    curve = run.evaluation.get("roc") or [[], []]
    if not curve[0]:
        return False
    label = f"{run.name}, AUC {run.evaluation['auc']:.4f}"
    axes.plot(*curve, color=color, label=label)
    axes.plot([0, 1], [0, 1], color="0.8", linewidth=1, zorder=0)
    axes.set(xlabel="false positive rate", ylabel="true positive rate")
    return True


def draw_calibration(axes: Any, run: RunResults, color: str) -> bool:
    """Draw observed over predicted click rates; larger points have more rows."""
    bins = np.array(run.evaluation.get("calibration") or [])
    if not len(bins):
        return False
    label = f"{run.name}, error {run.evaluation['calibration_error']:.4f}"
    axes.plot(bins[:, 0], bins[:, 1], color=color, label=label)
    axes.scatter(bins[:, 0], bins[:, 1], s=4 + 60 * bins[:, 2] / bins[:, 2].max(), color=color)
    axes.plot([0, 1], [0, 1], color="0.8", linewidth=1, zorder=0)
    axes.set(xlabel="predicted click probability", ylabel="observed click rate")
    return True


def draw_throughput(axes: Any, run: RunResults, color: str) -> bool:
    """Draw samples per second over steps."""
    rates = [entry["samples/s"] for entry in run.steps if entry.get("samples/s")]
    if not rates:
        return False
    middles, means = smooth(rates)
    axes.plot(middles, means, color=color, label=f"{run.name}, median {np.median(rates):,.0f}")
    axes.set(xlabel="step", ylabel="samples/s")
    axes.set_ylim(bottom=0)
    return True


MOST_LABELS = 12
"""Labels along one axis."""
WIDE = 20
"""From how many times the smallest on values stand by their logarithm."""
MOST_SPREAD = 40
"""Settings in one figure of spreads."""
CAPTIONS = {
    "spread": "Each run by its setting; the line is the mean.",
    "cost": "What each run reached over the seconds that it trained.",
    "parallel": "Each line is a setting, coloured by its mean; each axis one of its values.",
}


def draw_settings(settings: Sequence[RunGroup], measure: str) -> dict[str, Any]:
    """Draw every figure for which there is something to show; by file name."""
    measured = [setting for setting in settings if setting.measured(measure)]
    figures: dict[str, Any] = {}
    if any(len(setting.runs) > 1 for setting in measured) or len(measured) > 1:
        figures["spread"] = _spread(measured[:MOST_SPREAD], measure)
    costly = [s for s in measured if s.measured("time_to_train")]
    if costly and measure != "time_to_train":
        figures["cost"] = _cost(costly, measure)
    if len(measured) > 2:
        axes = _axes(measured)
        if len(axes) > 1:
            figures["parallel"] = _parallel(measured, axes, measure)
    return figures


def _spread(settings: Sequence[RunGroup], measure: str) -> Any:
    height = 1.2 + 0.34 * len(settings)
    figure, axes = plt.subplots(figsize=(6.4, max(2.4, height)), layout="constrained")
    for row, setting in enumerate(settings):
        values = np.array(setting.measured(measure))
        color = COLORS[row % len(COLORS)]
        apart = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1)
        axes.scatter(values, row + apart, s=14, color=color, alpha=0.8, linewidths=0)
        axes.plot([values.mean()] * 2, [row - 0.3, row + 0.3], color=color)
    axes.set_yticks(range(len(settings)), [_short(setting.name) for setting in settings])
    axes.invert_yaxis()
    axes.set_xlabel(MEASURES[measure].title)
    _finish(axes, "Distribution by setting")
    return figure


def _cost(settings: Sequence[RunGroup], measure: str) -> Any:
    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for index, setting in enumerate(settings):
        pairs = [(run.metric("time_to_train"), run.metric(measure)) for run in setting.runs]
        points = np.array([pair for pair in pairs if None not in pair], np.float64).reshape(-1, 2)
        label = _short(setting.name) if len(settings) <= len(COLORS) else None
        color = COLORS[index % len(COLORS)]
        axes.scatter(points[:, 0], points[:, 1], s=18, color=color, label=label)
    if len(settings) <= len(COLORS):
        axes.legend(fontsize=8, frameon=False)
    axes.set(xlabel="time to train (s)", ylabel=MEASURES[measure].title)
    _finish(axes, f"{MEASURES[measure].title} over cost")
    return figure


def _axes(settings: Sequence[RunGroup]) -> list[str]:
    keys = dict.fromkeys(key for setting in settings for key in setting.values)
    return [k for k in keys if len({shown_value(s.values.get(k)) for s in settings}) > 1]


def _parallel(settings: Sequence[RunGroup], keys: Sequence[str], measure: str) -> Any:
    means = np.array([np.mean(setting.measured(measure)) for setting in settings])
    title = MEASURES[measure].title
    width = max(6.4, 1.3 * (len(keys) + 1))
    figure, axes = plt.subplots(figsize=(width, 4.2), layout="constrained")
    columns = [[setting.values.get(key) for setting in settings] for key in keys]
    placed = [_placed(column) for column in [*columns, means.tolist()]]
    scale = plt.Normalize(means.min(), means.max())
    for number in np.argsort(means):  # the best on top
        line = [heights[number] for heights, _ in placed]
        axes.plot(range(len(line)), line, color=plt.cm.viridis(scale(means[number])), alpha=0.8)
    near = {"fontsize": 7, "xytext": (3, 2), "textcoords": "offset points"}
    for index, (_, labels) in enumerate(placed):
        axes.axvline(index, color="0.8", linewidth=1, zorder=0)
        for label, height in labels.items():
            axes.annotate(label, (index, height), **near)
    axes.set_xticks(range(len(placed)), [*keys, title], rotation=15, fontsize=8)
    axes.set_yticks([])
    axes.set_title("Values and what they reached", loc="left", fontsize=11)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def _placed(values: Sequence[Any]) -> tuple[list[float], dict[str, float]]:
    """Place the values of an axis between 0 and 1, and say which labels stand where.

    Numbers stand by their size, or its logarithm where they span much; others evenly.
    """
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        names = sorted({shown_value(value) for value in values})
        labels = {name: index / max(1, len(names) - 1) for index, name in enumerate(names)}
        return [labels[shown_value(value)] for value in values], labels
    numbers = np.array(values, np.float64)
    if numbers.min() > 0 and numbers.max() / numbers.min() >= WIDE:
        numbers = np.log(numbers)
    span = np.ptp(numbers)
    heights = ((numbers - numbers.min()) / span if span else np.zeros(len(numbers))).tolist()
    labels = {}
    for height, value in sorted(zip(heights, values, strict=True)):
        if not labels or height - max(labels.values()) >= 1 / MOST_LABELS or height == 1:
            labels[f"{value:.4g}"] = height
    return heights, labels


def _short(name: str, longest: int = 44) -> str:
    return name if len(name) <= longest else name[: longest - 3] + "..."


def _finish(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
