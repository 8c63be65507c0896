"""The errors that speak to the person at the keyboard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .problem import Problem

MOST_LISTED = 1_000
"""How many problems a message lists; all of them are in ``SpecError.problems``."""


class MerlinSimError(Exception):
    """Something the user can put right; the command line prints it and exits with 2.

    The message names the file, key, column or option, what was expected and what came.
    """

    exit_code = 2


class UnfitNumberError(MerlinSimError):
    """A number of which its operators make none that a model could read."""


class Stopped(MerlinSimError):
    """The person asked a run to stop, and it did."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h: the same command may end well another time


class DatasetWarning(UserWarning):
    """Something about a dataset that is most likely wrong, but can be meant."""


class SpecError(MerlinSimError):
    """All that is wrong with one description of a dataset, gathered.

    Args:
        source: The file or directory that was read.
        problems: What is wrong with it, in reading order; at least one.
    """

    def __init__(self, source: Path | str, problems: Sequence[Problem]) -> None:
        """Keep the problems; the message lists every one of them."""
        self.source = str(source)
        self.problems = tuple(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        lines = [f"  {problem}" for problem in self.problems[:MOST_LISTED]]
        if len(self.problems) > MOST_LISTED:
            lines.append(f"  and {len(self.problems) - MOST_LISTED:,} more")
        super().__init__("\n".join([f"{source}: {count}", *lines]))
