"""What bench_days.py found, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Outcome(NamedTuple):
    """A model of one day, on the next."""

    day: int
    arm: str
    auc: float
    seconds: float
    """Of processor, of training it."""
    preprocessing: float
    """The same, of making its data."""
    minutes: float
    """Of the clock, of training it."""


def print_table(outcomes: Sequence[Outcome]) -> None:
    """Print a table in markdown: AUC of the next day and seconds, a line for each day."""
    arms = list(dict.fromkeys(outcome.arm for outcome in outcomes))
    found = {(outcome.day, outcome.arm): outcome for outcome in outcomes}
    print("| day | " + " | ".join(arms) + " |")
    print("|---" * (len(arms) + 1) + "|")
    for day in sorted({outcome.day for outcome in outcomes}):
        cells = [_cell(found.get((day, arm))) for arm in arms]
        print(f"| {day} | " + " | ".join(cells) + " |")
    shared = [day for day in {o.day for o in outcomes} if (day, "scratch") in found and day]
    for arm in arms:
        both = [(found[day, arm], found[day, "scratch"]) for day in shared if (day, arm) in found]
        if not both or arm == "scratch":
            continue
        apart = [of_arm.auc - of_scratch.auc for of_arm, of_scratch in both]
        seconds, others = (sum(o[side].seconds for o in both) for side in (0, 1))
        making, others_making = (sum(o[side].preprocessing for o in both) for side in (0, 1))
        print(
            f"{arm} against scratch on {len(both)} days: AUC {sum(apart) / len(apart):+.4f} "
            f"({min(apart):+.4f} to {max(apart):+.4f}); training {seconds:.0f} s of processor "
            f"against {others:.0f}, with preprocessing {seconds + making:.0f} against "
            f"{others + others_making:.0f}"
        )


def _cell(outcome: Outcome | None) -> str:
    if outcome is None:
        return ""
    return f"{outcome.auc:.4f}" + (f" ({outcome.seconds:.0f} s)" if outcome.seconds else "")
