"""The errors of merlin-sim, and what is wrong with a file: where, what was expected, what came."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KeyPath = tuple[str | int, ...]

MOST_SHOWN = 8
"""Entries of a list that a message shows."""
_PLAIN_STEP = re.compile(r"[\w\-/:<> ]+")


@dataclass(frozen=True)
class Problem:
    """One finding, written so that a person can go and mend it.

    >>> print(Problem("spec.yaml", ("source_spec", "train", 0), "a mapping", "the text 'x'", 7))
    spec.yaml:7: source_spec.train[0]: expected a mapping, got the text 'x'
    """

    file: str
    path: KeyPath
    expected: str
    received: str
    line: int | None = None

    def __str__(self) -> str:
        """Return ``file:line: key.path[0]: expected ..., got ...``."""
        location = self.file if self.line is None else f"{self.file}:{self.line}"
        key = format_key_path(self.path)
        return (
            f"{location}: {key}{': ' if key else ''}expected {self.expected}, got {self.received}"
        )


def format_key_path(path: KeyPath) -> str:
    """Write a key path as a person would type it.

    >>> format_key_path(("source_spec", "train", 0, "features", 2))
    'source_spec.train[0].features[2]'
    """
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            name = step if _PLAIN_STEP.fullmatch(step) else repr(step)
            text += f".{name}" if text else name
    return text


def describe(value: Any) -> str:
    """Describe a value that came where another was expected, in one short line.

    >>> describe(-3), describe("x"), describe([]), describe(None)
    ('the number -3', "the text 'x'", 'an empty list', 'nothing')
    >>> describe([1, "x"]), describe([[1], [2]]), describe({"least": 1, "most": 3})
    ("the list [1, 'x']", 'a list of 2', 'a mapping with least, most')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {_shorten(str(value))}"
    if isinstance(value, str):
        return f"the text {_shorten(repr(value))}"
    if isinstance(value, dict):
        if not value:
            return "an empty mapping"
        return _shorten(f"a mapping with {', '.join(map(str, value))}")
    if isinstance(value, list | tuple):
        return _describe_list(list(value)) if value else "an empty list"
    return _shorten(repr(value))


def _describe_list(values: list[Any]) -> str:
    """Show what is short enough to be read at a glance, count what is not."""
    if len(values) <= MOST_SHOWN and all(isinstance(v, str | int | float) for v in values):
        return f"the list {_shorten(repr(values))}"
    return f"a list of {len(values)}"


def _shorten(text: str, longest: int = 60) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."


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
        self.source = str(source)
        self.problems = tuple(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        lines = [f"  {problem}" for problem in self.problems[:MOST_LISTED]]
        if len(self.problems) > MOST_LISTED:
            lines.append(f"  and {len(self.problems) - MOST_LISTED:,} more")
        super().__init__("\n".join([f"{source}: {count}", *lines]))
