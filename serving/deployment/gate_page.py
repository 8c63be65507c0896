"""Report of a gate: JSON for programs, a page for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt

from ...training.reports.figures import COLORS
from ...training.reports.page import Figures, Page, PageTable, Text
from ...training.reports.report import as_images
from .gate import (
    ALL,
    LONG_HISTORIES,
    NEW_ITEMS,
    NEW_USERS,
    NOT_WORSE,
    WORSE,
    Gate,
    Judgement,
)
from .gate_rules import MORE_IS_BETTER, TITLES

FORMAT = 2
HEAD = ("", "Measure", "Rows", "Users", "Current", "Challenger", "Difference", "95% over users", "")
HOW_TO_READ = (
    "Users are drawn with replacement, all rows of a user with it, and both models are measured on "
    "the same sets of them; the interval holds the difference in 95 of 100 such comparisons. Not "
    "worse: all of the interval is better than the margin allows. Worse: none of it is. Not known: "
    "part of it. All rows have to be not worse, segments must not be worse."
)
COLOR_OF = {NOT_WORSE: COLORS[2], WORSE: COLORS[1]}


def rows_of(gate: Gate) -> list[list[str]]:
    """Write the judgements as rows of text, under :data:`HEAD`."""
    rows, before = [], ""
    for found in gate.judgements:
        interval = "" if found.interval is None else " to ".join(map(_signed, found.interval))
        rows.append(
            [
                "" if found.segment == before else found.segment,
                TITLES[found.measure],
                f"{found.rows:,}",
                f"{found.users:,}",
                _shown(found.current),
                _shown(found.challenger),
                "" if found.difference is None else _signed(found.difference),
                interval,
                found.verdict,
            ]
        )
        before = found.segment
    return rows


def write_gate(
    directory: Path, gate: Gate, metadata: Mapping[str, Any], long_from: int | None
) -> Path:
    """Write gate.json, gate.html, gate.md and their figure; return the HTML.

    The JSON is written last, so that where it is, all is.
    """
    page = Page("Gate: passed" if gate.passed else "Gate: not passed")
    reasons = [Text(reason + ".") for reason in gate.reasons]
    page.add("Verdict", *(reasons or [Text("The challenger is not worse than the current model.")]))
    page.add(
        "Measures", PageTable(HEAD, rows_of(gate)), Text(HOW_TO_READ), Text(_segments(long_from))
    )
    page.add("Differences", Figures(as_images({"differences": _draw(gate)}, CAPTIONS)))
    page.add("What was compared", PageTable(["", "Challenger", "Current"], _compared(metadata)))
    document = {"format": FORMAT, **gate.to_dict(), "long_from": long_from, **metadata}
    return page.write(directory, "gate", document)


CAPTIONS = {
    "differences": "Challenger less current with 95% over users; beyond the dotted line the "
    "challenger would be worse by more than the margin."
}


def _segments(long_from: int | None) -> str:
    parts = [
        f"{NEW_USERS} and {NEW_ITEMS} are those that the current model did not know when it was "
        "trained"
    ]
    if long_from is not None:
        parts.append(f"{LONG_HISTORIES} have {long_from:,} interactions or more")
    text = "; ".join(parts) + "."
    return text[0].upper() + text[1:]


def _compared(metadata: Mapping[str, Any]) -> list[list[str]]:
    challenger, current = metadata["challenger"], metadata["current"]
    keys = dict.fromkeys((*challenger, *current))
    return [
        [key.replace("_", " "), str(challenger.get(key)), str(current.get(key))] for key in keys
    ]


def _draw(gate: Gate) -> Any:
    figure, all_axes = plt.subplots(
        1, len(MORE_IS_BETTER), figsize=(10, 2.6), layout="constrained", sharey=True
    )
    for axes, (measure, more_is_better) in zip(all_axes, MORE_IS_BETTER.items(), strict=True):
        found = [judgement for judgement in gate.judgements if judgement.measure == measure]
        for row, judgement in enumerate(found):
            _draw_one(axes, row, judgement)
        margin = -found[0].margin if more_is_better else found[0].margin
        axes.axvline(0, color="0.6", linewidth=1)
        axes.axvline(margin, color=COLORS[1], linewidth=1, linestyle=":")
        axes.set_title(TITLES[measure], loc="left", fontsize=11)
        axes.set_yticks(range(len(found)), [judgement.segment for judgement in found])
        axes.tick_params(axis="x", labelsize=8)
        axes.locator_params(axis="x", nbins=4)
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[0].set_ylim(len(found) - 0.5, -0.5)
    return figure


def _draw_one(axes: Any, row: int, found: Judgement) -> None:
    if found.interval is None or found.difference is None:
        return
    color = COLOR_OF.get(found.verdict, "0.5")
    axes.plot(found.interval, [row, row], color=color, linewidth=2)
    size = 36 if found.segment == ALL else 18
    axes.scatter([found.difference], [row], s=size, color=color, zorder=3)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _signed(value: float) -> str:
    return f"{value:+.4f}"
