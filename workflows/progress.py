"""What a person sees of long work: phase, rows, time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Report(Protocol):
    """Takes note of work done in a phase."""

    def __call__(self, done: float, rows: int = 0) -> None:
        """Add ``done`` of the phase's total, and rows."""


class Narrator(Protocol):
    """Tells how far the work is."""

    @contextmanager
    def phase(self, name: str, total: float) -> Iterator[Report]:
        """Announce a phase; what it yields takes note of progress."""
        ...

    def say(self, message: str) -> None:
        """Tell a sentence."""


class Silence:
    """Tells nothing."""

    @contextmanager
    def phase(self, name: str, total: float) -> Iterator[Report]:
        """See :class:`Narrator`."""
        yield lambda done, rows=0: None

    def say(self, message: str) -> None:
        """See :class:`Narrator`."""


class Terminal:
    """A live bar per phase on a terminal, one line per phase elsewhere, on stderr."""

    def __init__(self) -> None:
        """Look whether there is a terminal."""
        self.console = Console(file=sys.stderr, highlight=False, soft_wrap=True)

    def say(self, message: str) -> None:
        """See :class:`Narrator`."""
        self.console.print(message, markup=False)

    @contextmanager
    def phase(self, name: str, total: float) -> Iterator[Report]:
        """See :class:`Narrator`."""
        started = time.monotonic()
        rows = 0
        with Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[rows]:>13,} rows"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        ) as bars:
            bar: TaskID = bars.add_task(name, total=max(total, 1e-9), rows=0)

            def report(done: float, more: int = 0) -> None:
                nonlocal rows
                rows += more
                bars.update(bar, advance=done, rows=rows)

            yield lambda done, rows=0: report(done, rows)
        self.say(f"{name:<24} {rows:>13,} rows {time.monotonic() - started:8.1f} s")
