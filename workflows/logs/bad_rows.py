"""Rows that cannot be read: refused with file and line, or left out and counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...foundation.exceptions import MerlinSimError

FAIL = "fail"
SKIP = "skip"
POLICIES = (FAIL, SKIP)
EXAMPLES = 3


@dataclass(frozen=True)
class BadRow:
    """One row that cannot be read."""

    line: int
    """Its line, from 1; in what a worker reads first relative to its block."""
    reason: str
    """What was expected and what came."""


@dataclass
class BadRows:
    """The bad rows of one file, as a run counts them."""

    path: str
    count: int = 0
    examples: list[BadRow] = field(default_factory=list)

    def add(self, rows: Sequence[BadRow], lines_before: int) -> None:
        """Count the rows of a block that begins after ``lines_before`` lines."""
        self.count += len(rows)
        for row in rows[: EXAMPLES - len(self.examples)]:
            self.examples.append(BadRow(row.line + lines_before, row.reason))

    def describe(self) -> str:
        """Say in a line how many rows were left out, and show the first."""
        shown = "; ".join(f"line {row.line}: {row.reason}" for row in self.examples)
        return f"{self.path}: {self.count:,} bad rows left out ({shown})"


def refuse(path: object, row: BadRow) -> MerlinSimError:
    """The error that a bad row is under ``--on_bad_rows fail``."""
    return MerlinSimError(
        f"{path}, line {row.line}: {row.reason}. "
        "(`--on_bad_rows skip` leaves such rows out and counts them.)"
    )
