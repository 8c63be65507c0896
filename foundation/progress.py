"""Progress of long work, for a person: phases with rows, passes with steps, time left."""

from __future__ import annotations

import os
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
from rich.table import Column

PLAIN_SECONDS = 15.0
"""Seconds between the lines of a pass where there is no terminal."""
WIDE = 100
"""Columns of a terminal from which a bar has room beside a pass's numbers."""
STARTING = "the first batch takes longest"
"""Shown until there are numbers: with the first batch TensorFlow makes the graph."""


class Report(Protocol):
    """Takes note of work done in a phase."""

    def __call__(self, done: float, rows: int = 0) -> None:
        """Add ``done`` of the phase's total, and rows."""


class Reporter:
    """Reports how far the work is."""

    @contextmanager
    def phase(self, name: str, total: float) -> Iterator[Report]:
        """Announce a phase; what it yields takes note of progress."""
        yield lambda done, rows=0: None

    def say(self, message: str) -> None:
        """Report a sentence."""


class Silence(Reporter):
    """Reports nothing."""


class Terminal(Reporter):
    """A live bar per phase on a terminal, one line per phase elsewhere, on stderr."""

    def __init__(self) -> None:
        self.console = Console(file=sys.stderr, highlight=False, soft_wrap=True)

    def say(self, message: str) -> None:
        """See :class:`Reporter`."""
        self.console.print(message, markup=False)

    @contextmanager
    def phase(self, name: str, total: float) -> Iterator[Report]:
        """See :class:`Reporter`."""
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


@contextmanager
def steps_line(console: Console, title: str, steps: int, done: int = 0) -> Iterator[StepsLine]:
    """Show how far a pass has come: live on a terminal, now and then in a log."""
    # mpirun gives every rank a terminal of its own, wherever its own output may go.
    if console.quiet or not console.is_terminal or "OMPI_COMM_WORLD_SIZE" in os.environ:
        yield PlainLine(console, title, steps, done)
        return
    one_line = Column(no_wrap=True, overflow="ellipsis")
    columns = (
        TextColumn("{task.description}"),
        *([BarColumn(bar_width=20)] if console.width >= WIDE else []),
        TextColumn("{task.completed}/{task.total}"),
        TextColumn("{task.fields[values]}", table_column=one_line),
        TimeRemainingColumn(),
    )
    # The line is removed when the pass is over: its summary takes that place.
    with Progress(*columns, console=console, refresh_per_second=4, transient=True) as bar:
        yield LiveLine(bar, bar.add_task(title, total=steps, completed=done, values=STARTING))


class LiveLine:
    """A line that redraws itself."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar = bar
        self._task = task

    def update(self, done: int, values: str) -> None:
        """Redraw at the next refresh."""
        self._bar.update(self._task, completed=done, values=values)


class PlainLine:
    """A line every :data:`PLAIN_SECONDS`."""

    def __init__(self, console: Console, title: str, steps: int, done: int) -> None:
        self._console = console
        self._title = title
        self._steps = steps
        self._begin = self._last = time.monotonic()
        self._before = done

    def update(self, done: int, values: str) -> None:
        """Print if it is time."""
        now = time.monotonic()
        if now - self._last < PLAIN_SECONDS:
            return
        self._last = now
        left = (now - self._begin) / max(1, done - self._before) * (self._steps - done)
        line = f"{self._title} {done}/{self._steps}  {values}  {left:.0f} s left"
        self._console.print(line, markup=False)


StepsLine = LiveLine | PlainLine
