"""What is printed at the end: each failure as its smallest case, and the table."""

from __future__ import annotations

from .campaign import Campaign, Tally
from .outcome import READ, REFUSED


def failures_text(campaign: Campaign) -> str:
    """Every failure that was made small, the others by number."""
    lines = []
    for name, tally in campaign.tallies.items():
        for failure in tally.failures:
            again = f"--only {name} --seed {campaign.seed} --case {failure.case.number}"
            lines.append(f"{name} case {failure.case.number}: {failure.outcome.kind}")
            lines.append(f"  {failure.outcome.said}")
            lines.append(f"  smallest: {failure.smallest}")
            lines.append(f"  again: make attack ATTACK_ARGS='{again}'")
    return "\n".join(lines)


def table_text(tallies: dict[str, Tally], seconds: float) -> str:
    """The table of docs/reliability.md."""
    lines = ["| input | cases | read, and equal | refused | failures |"]
    lines.append("|---|---:|---:|---:|---:|")
    for name, tally in tallies.items():
        cells = [tally.cases, tally.counts[READ], tally.counts[REFUSED], len(tally.failures)]
        lines.append(f"| {name} | " + " | ".join(f"{cell:,}" for cell in cells) + " |")
    kinds = {name: dict(tally.counts) for name, tally in tallies.items()}
    return "\n".join([*lines, "", f"{seconds:.0f} s; {kinds}"])
