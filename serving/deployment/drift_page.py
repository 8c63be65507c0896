"""Report of a comparison of datasets: JSON for programs, a page for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt

from ...training.reports.figures import COLORS
from ...training.reports.page import Figures, Page, PageTable, Text
from ...training.reports.report import as_images
from .drift_findings import Array, DriftBounds, FeatureDrift
from .server_page import DISTANCES, DISTANCES_CAPTION, FORMAT

HEAD = ("Feature", "What", "Values", "New values", "Mean", "New mean", "Unknown", "New unknown",
        "PSI", "KS", "Too far")  # fmt: skip
HOW_TO_READ = (
    "PSI is the population stability index over bins that hold a tenth of the reference each: of "
    "ids by how often the reference has them, with one more bin for those that it does not know. "
    "KS is Kolmogorov and Smirnov's: the largest distance of the two distribution functions; ids "
    "stand in the same order. Unknown are ids without a key, and those of keys that the reference "
    "did not have."
)
CAPTIONS = {
    DISTANCES: DISTANCES_CAPTION,
    "distributions": "Share of values up to each: the reference, and the new data.",
}
Curves = Mapping[str, tuple[Array, Array]]
"""Title -> values of the reference, new values."""


def rows_of(findings: Sequence[FeatureDrift]) -> list[list[str]]:
    """Write findings as rows of text, under :data:`HEAD`."""
    return [
        [
            found.feature,
            found.kind,
            f"{found.reference:,}",
            f"{found.new:,}",
            *(_shown(mean, ".4g") for mean in (found.reference_mean, found.new_mean)),
            *(_shown(share, ".2%") for share in (found.reference_unknown, found.new_unknown)),
            f"{found.psi:.4f}",
            f"{found.ks:.4f}",
            ", ".join(found.reasons),
        ]
        for found in findings
    ]


def write_drift(
    directory: Path,
    findings: Sequence[FeatureDrift],
    bounds: DriftBounds,
    metadata: Mapping[str, Any],
    curves: Curves,
) -> Path:
    """Write drift.json, drift.html, drift.md and their figures; return the HTML."""
    drifted = [found.feature for found in findings if found.drifted]
    page = Page("Drift: " + (", ".join(drifted) if drifted else "none"))
    page.add("Features", PageTable(HEAD, rows_of(findings)), Text(HOW_TO_READ))
    figures = {DISTANCES: _draw_distances(findings, bounds)}
    if curves:
        figures["distributions"] = _draw_curves(curves)
    page.add("Figures", Figures(as_images(figures, CAPTIONS)))
    compared = [[name, str(value)] for name, value in metadata.items()]
    page.add("What was compared", PageTable(["", ""], compared))
    document = {
        "format": FORMAT,
        "drifted": drifted,
        "bounds": asdict(bounds),
        "findings": [found.to_dict() for found in findings],
        **metadata,
    }
    return page.write(directory, "drift", document)


def _draw_distances(findings: Sequence[FeatureDrift], bounds: DriftBounds) -> Any:
    height = max(2.0, 0.9 + 0.3 * len(findings))
    figure, (psi, ks) = plt.subplots(1, 2, figsize=(9, height), layout="constrained", sharey=True)
    names = [f"{found.feature} ({found.kind})" for found in findings]
    for axes, measure, title in ((psi, "psi", "PSI"), (ks, "ks", "KS")):
        values = [getattr(found, measure) for found in findings]
        bound = getattr(bounds, measure)
        colors = [COLORS[1] if value > bound else COLORS[0] for value in values]
        axes.barh(range(len(values)), values, color=colors, height=0.6)
        axes.axvline(bound, color="0.3", linewidth=1, linestyle=":")
        axes.set_title(title, loc="left", fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
    psi.set_yticks(range(len(names)), names, fontsize=8)
    psi.invert_yaxis()
    return figure


def _draw_curves(curves: Curves) -> Any:
    figure, all_axes = plt.subplots(
        1, len(curves), figsize=(4.2 * len(curves), 3), layout="constrained", squeeze=False
    )
    shares = np.linspace(0, 1, 201)
    for axes, (title, sides) in zip(all_axes[0], curves.items(), strict=True):
        for values, name, color in zip(sides, ("reference", "new"), COLORS, strict=False):
            axes.plot(np.quantile(values, shares), shares, label=name, color=color)
        axes.set_title(title, loc="left", fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[0][0].legend(fontsize=8, frameon=False)
    return figure


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
