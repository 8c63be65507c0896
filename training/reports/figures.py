"""Figures of runs: loss and AUC over time, ROC, calibration, throughput; several side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402

from .run_results import RunResults  # noqa: E402

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
            axes.set_title(title, loc="left", fontsize=11)
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend(fontsize=8, frameon=False)
            figures[name] = figure
        else:
            plt.close(figure)
    return figures


def smooth(values: list[float]) -> tuple[Any, Any]:
    """Average runs of steps so that about 200 points are left: (middle places, means).

    >>> places, means = smooth([float(v) for v in range(400)])
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
    places, means = smooth([entry["total_loss"] for entry in steps])
    numbers = np.array([entry["step"] for entry in steps])
    x = numbers[np.clip(places.astype(int) - 1, 0, len(numbers) - 1)]
    axes.plot(x, means, color=color, label=run.name)
    axes.set_xlabel("step")
    axes.set_ylabel("total loss")
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
    axes.set_xlabel("epoch")
    axes.set_ylabel("AUC")
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
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")
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
    axes.set_xlabel("predicted click probability")
    axes.set_ylabel("observed click rate")
    return True


def draw_throughput(axes: Any, run: RunResults, color: str) -> bool:
    """Draw samples per second over steps."""
    rates = [entry["samples/s"] for entry in run.steps if entry.get("samples/s")]
    if not rates:
        return False
    places, means = smooth(rates)
    axes.plot(places, means, color=color, label=f"{run.name}, median {np.median(rates):,.0f}")
    axes.set_xlabel("step")
    axes.set_ylabel("samples/s")
    axes.set_ylim(bottom=0)
    return True
