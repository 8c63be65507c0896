"""A study's YAML: which options, values, seeds and datasets, as a grid or as a search."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...foundation.exceptions import Problem, SpecError, describe
from ...foundation.settings import shown_value
from ...schemas.yaml_document import Node, read_yaml
from ..reports.run_results import MEASURES

COMMANDS = ("train", "inference")
RANKS = "ranks"
"""What stands among options and is none of the command's: how many processes a run has."""
DATASET_NAME = re.compile(r"[\w.-]+")
KEYS = {
    "title": "a text",
    "command": " or ".join(COMMANDS),
    "results_dir": "a directory",
    "datasets": "names, each with a dataset directory",
    "seeds": "a positive number of them, or a list",
    "options": "options of the command with their values",
    "grid": "options, each with a list of values",
    "search": "trials, space, prune, seed",
    "measures": "a list of what is tabulated",
    "reference": "values of the grid with which others are compared",
    "checkpoints": "true or false",
}
SEARCH_KEYS = ("trials", "space", "prune", "startup_trials", "warmup_epochs", "seed")
LEAST = {"trials": 1, "startup_trials": 0, "warmup_epochs": 0, "seed": 0}
"""The smallest values of a search's numbers."""
RANGE_KEYS = ("low", "high", "log", "step")


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; whole ones where both are."""

    low: float
    high: float
    log: bool = False
    step: float | None = None


Values = tuple[Any, ...]


@dataclass(frozen=True)
class Search:
    """Space and budget of a search."""

    trials: int
    space: Mapping[str, Range | Values]
    prune: bool = True
    """End trials early that do worse than the median of the others after as many epochs."""
    startup_trials: int = 5
    """Trials that are not pruned."""
    warmup_epochs: int = 0
    """First epochs of a trial, after which it is not pruned."""
    seed: int = 0


@dataclass(frozen=True)
class StudyFile:
    """A study as its file describes it; the values of options are not looked at yet."""

    path: Path
    title: str
    datasets: Mapping[str, Path]
    command: str = "train"
    results_dir: Path | None = None
    seeds: tuple[int, ...] = (1,)
    options: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, Values] = field(default_factory=dict)
    search: Search | None = None
    measures: tuple[str, ...] = ()
    reference: Mapping[str, Any] = field(default_factory=dict)
    checkpoints: bool = True
    """Whether runs save, so that one that was stopped goes on within itself."""


def read_study(path: Path) -> StudyFile:
    """Read a study's file."""
    node, problems = read_yaml(path)
    if node is None:
        raise SpecError(path, problems)
    reader = _StudyReader(path, node, list(problems))
    study = reader.study(node.plain())
    if reader.problems or study is None:
        raise SpecError(path, reader.problems)
    return study


class _StudyReader:
    def __init__(self, path: Path, node: Node, problems: list[Problem]) -> None:
        self.path, self.node, self.problems = path, node, problems

    def wrong(self, key_path: Sequence[str | int], expected: str, received: Any) -> None:
        text = received if isinstance(received, str) else describe(received)
        line = self.node.line_of(tuple(key_path))
        self.problems.append(Problem(self.path.name, tuple(key_path), expected, text, line))

    def study(self, content: Any) -> StudyFile | None:
        if not isinstance(content, dict) or not content:
            self.wrong((), "a study: " + ", ".join(KEYS), describe(content))
            return None
        for key, value in content.items():
            if key not in KEYS:
                self.wrong((str(key),), "one of " + ", ".join(KEYS), "an unknown key")
            elif value is None:
                self.wrong((key,), KEYS[key], "nothing")
        found: dict[str, Any] = {
            name: read(content[name])
            for name, read in self._readers().items()
            if content.get(name) is not None
        }
        if "datasets" not in content:
            self.wrong(("datasets",), KEYS["datasets"], "nothing")
        self._check_together(content, found)
        found.setdefault("title", self.path.stem)
        return None if self.problems else StudyFile(path=self.path, **found)

    def _readers(self) -> dict[str, Callable[[Any], Any]]:
        return {
            "title": lambda value: self._checked("title", value, isinstance(value, str)),
            "command": lambda value: self._checked("command", value, value in COMMANDS),
            "results_dir": lambda value: Path(
                self._checked("results_dir", value, isinstance(value, str)) or "."
            ),
            "datasets": self._datasets,
            "seeds": self._seeds,
            "options": lambda value: self._mapping(("options",), value),
            "grid": lambda value: self._lists(("grid",), value),
            "search": self._search,
            "measures": self._measures,
            "reference": lambda value: self._mapping(("reference",), value),
            "checkpoints": lambda value: self._checked(
                "checkpoints", value, isinstance(value, bool)
            ),
        }

    def _check_together(self, content: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        if "grid" in content and "search" in content:
            self.wrong(("search",), "a grid or a search", "both")
        if found.get("search") is not None and found.get("command", "train") != "train":
            self.wrong(("search",), "the command train", f"the command {found['command']}")
        space = found["search"].space if found.get("search") is not None else {}
        varied = {**(found.get("grid") or {}), **space}
        for name in varied:
            if name in (found.get("options") or {}):
                self.wrong(("options", name), "an option that is not varied too", "one that is")
        for name, value in (found.get("reference") or {}).items():
            values = (found.get("grid") or {}).get(name, ())
            if plain(value) not in values:
                shown = ", ".join(map(shown_value, values)) or "none: it is not in the grid"
                self.wrong(("reference", name), f"a value of the grid ({shown})", value)

    def _checked(self, key: str, value: Any, is_right: bool) -> Any:
        if is_right:
            return value
        self.wrong((key,), KEYS[key], value)
        return None

    def _mapping(self, key_path: Sequence[str | int], value: Any) -> dict[str, Any]:
        if isinstance(value, dict) and all(isinstance(name, str) for name in value):
            return {name: plain(entry) for name, entry in value.items()}
        self.wrong(key_path, "names with values", value)
        return {}

    def _datasets(self, value: Any) -> dict[str, Path]:
        found = {}
        for name, path in self._mapping(("datasets",), value).items():
            if not DATASET_NAME.fullmatch(name):
                expected = "a name of letters, digits, points, - and _"
                self.wrong(("datasets", name), expected, "another one")
            elif not isinstance(path, str):
                self.wrong(("datasets", name), "a dataset directory", path)
            else:
                found[name] = Path(path)
        if value == {}:
            self.wrong(("datasets",), "at least one", "none")
        return found

    def _seeds(self, value: Any) -> tuple[int, ...]:
        if _is_whole(value) and value >= 1:
            return tuple(range(1, value + 1))
        if isinstance(value, list) and value and all(_is_whole(v) and v >= 0 for v in value):
            if len(set(value)) == len(value):
                return tuple(value)
        self.wrong(("seeds",), "a positive number of them, or a list of different ones", value)
        return ()

    def _lists(self, key_path: Sequence[str | int], value: Any) -> dict[str, Values]:
        found = {}
        for name, values in self._mapping(key_path, value).items():
            values = value[name]
            if isinstance(values, list) and values:
                found[name] = tuple(map(plain, values))
                if len(set(map(repr, found[name]))) < len(values):
                    self.wrong((*key_path, name), "different values", "one of them twice")
            else:
                self.wrong((*key_path, name), "a list of at least one value", values)
        if value == {}:
            self.wrong(key_path, "at least one option with its values", "none")
        return found

    def _measures(self, value: Any) -> tuple[str, ...]:
        if isinstance(value, list) and value and all(name in tuple(MEASURES) for name in value):
            return tuple(value)
        self.wrong(("measures",), "a list of " + ", ".join(MEASURES), value)
        return ()

    def _search(self, value: Any) -> Search | None:
        if not isinstance(value, dict):
            self.wrong(("search",), KEYS["search"], value)
            return None
        for key in value:
            if key not in SEARCH_KEYS:
                key_path = ("search", str(key))
                self.wrong(key_path, "one of " + ", ".join(SEARCH_KEYS), "an unknown key")
        numbers: dict[str, int] = {}
        for name, least in LEAST.items():
            number: Any = value.get(name)
            if number is None and name != "trials":
                continue
            if _is_whole(number) and number >= least:
                numbers[name] = number
            else:
                self.wrong(("search", name), f"a whole number of at least {least}", number)
        if not isinstance(value.get("prune", True), bool):
            self.wrong(("search", "prune"), "true or false", value["prune"])
        space = self._space(value.get("space"))
        if "trials" not in numbers:
            return None
        return Search(space=space, prune=value.get("prune", True) is True, **numbers)

    def _space(self, value: Any) -> dict[str, Range | Values]:
        if not isinstance(value, dict) or not value:
            expected = "options, each with a list of values or with low and high"
            self.wrong(("search", "space"), expected, value)
            return {}
        found: dict[str, Range | Values] = {}
        for name, entry in value.items():
            key_path = ("search", "space", str(name))
            if isinstance(entry, dict):
                found[str(name)] = self._range(key_path, entry)
            else:
                found |= self._lists(key_path[:2], {str(name): entry})
        return found

    def _range(self, key_path: Sequence[str | int], entry: dict[str, Any]) -> Range:
        nothing = Range(0, 1)
        for key in entry:
            if key not in RANGE_KEYS:
                self.wrong(
                    (*key_path, str(key)), "one of " + ", ".join(RANGE_KEYS), "an unknown key"
                )
        low: Any
        high: Any
        low, high = entry.get("low"), entry.get("high")
        step: Any = entry.get("step")
        log: Any = entry.get("log", False)
        if not (_is_number(low) and _is_number(high) and low < high):
            self.wrong(key_path, "low and high, numbers, the first the smaller", describe(entry))
            return nothing
        if not isinstance(log, bool):
            self.wrong((*key_path, "log"), "true or false", log)
        elif log and (low <= 0 or step is not None):
            self.wrong((*key_path, "log"), "a low above 0 and no step", f"low {low}, step {step}")
        whole = _is_whole(low) and _is_whole(high)
        if step is not None and not (_is_number(step) and step > 0):
            self.wrong((*key_path, "step"), "a positive number", step)
        elif step is not None and whole and not _is_whole(step):
            self.wrong((*key_path, "step"), "a whole number, as low and high are", step)
        return Range(low, high, log is True, step)


def plain(value: Any) -> Any:
    """Write a list as the command line has it, so that values compare and are shown alike.

    >>> plain([200, 80]), plain(0.5)
    ('200,80', 0.5)
    """
    return shown_value(value) if isinstance(value, list) else value


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
