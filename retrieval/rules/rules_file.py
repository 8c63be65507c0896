"""Reads the rules of recommendation from YAML, and tells all that is wrong at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...foundation.exceptions import SpecError
from ...foundation.problem import KeyPath, Problem, describe
from ...schemas.specs.yaml_document import read_yaml
from .predicate import COMPARISONS, OF_LISTS, Predicate, UserFact

KEYS = ("items", "seen", "filters", "caps", "diversity")
DROP, KEEP = "drop", "keep"


@dataclass(frozen=True)
class Rules:
    """What may be recommended, and in which order."""

    items: Path | None = None
    """A file of facts of items, parquet or csv; None for what the dataset knows alone."""
    drops_seen: bool = True
    """Whether items of the user's history are left out."""
    filters: tuple[Predicate, ...] = ()
    """All of which an item has to pass."""
    caps: Mapping[str, int] = field(default_factory=dict)
    """Column -> how many items of one value an answer may have."""
    diversity: float = 0.0
    """How much likeness to what stands above counts against an item, from 0 to 1."""


def read_rules(path: Path) -> Rules:
    """Read a file of rules; a path in it is relative to it.

    Raises:
        SpecError: With everything that is wrong, each with its line.
    """
    node, problems = read_yaml(path)
    if node is None:
        raise SpecError(path, problems)
    reader = _Reader(path, node.line_of, list(problems))
    rules = reader.read(node.plain())
    if reader.problems:
        raise SpecError(path, sorted(reader.problems, key=lambda problem: problem.line or 0))
    return rules


@dataclass
class _Reader:
    path: Path
    line_of: Callable[[KeyPath], int]
    problems: list[Problem]

    def read(self, plain: Any) -> Rules:
        if not isinstance(plain, Mapping):
            self._wrong((), "a mapping of " + ", ".join(KEYS), plain)
            return Rules()
        for key in plain:
            if key not in KEYS:
                self._wrong((key,), "one of " + ", ".join(KEYS), key)
        seen = plain.get("seen", DROP)
        if seen not in (DROP, KEEP):
            self._wrong(("seen",), f"{DROP} or {KEEP}", seen)
        diversity = plain.get("diversity", 0.0)
        if not _is_number(diversity) or not 0 <= diversity <= 1:
            self._wrong(("diversity",), "a number from 0 to 1", diversity)
            diversity = 0.0
        return Rules(
            self._items(plain.get("items")),
            seen == DROP,
            self._filters(plain.get("filters", [])),
            self._caps(plain.get("caps", {})),
            float(diversity),
        )

    def _items(self, given: Any) -> Path | None:
        if given is None:
            return None
        if not isinstance(given, str) or not given.endswith((".parquet", ".csv")):
            self._wrong(("items",), "a file, .parquet or .csv", given)
            return None
        return self.path.parent / given

    def _filters(self, given: Any) -> tuple[Predicate, ...]:
        if not isinstance(given, list):
            self._wrong(("filters",), "a list of rules", given)
            return ()
        found = [self._filter(("filters", i), entry) for i, entry in enumerate(given)]
        return tuple(rule for rule in found if rule is not None)

    def _filter(self, place: KeyPath, entry: Any) -> Predicate | None:
        wanted = "a column and one of " + ", ".join(COMPARISONS)
        if not isinstance(entry, Mapping) or not isinstance(entry.get("column"), str):
            self._wrong(place, wanted, entry)
            return None
        named = [key for key in entry if key != "column"]
        if len(named) != 1 or named[0] not in COMPARISONS:
            self._wrong(place, wanted, ", ".join(map(str, entry)))
            return None
        comparison, value = named[0], entry[named[0]]
        if isinstance(value, Mapping):
            if list(value) != ["user"] or not isinstance(value["user"], str):
                self._wrong((*place, comparison), "`user` with the name of a fact", value)
                return None
            return Predicate(entry["column"], comparison, UserFact(value["user"]))
        of_list = comparison in OF_LISTS
        if value is None or isinstance(value, list) != of_list or value == []:
            self._wrong((*place, comparison), "a list of values" if of_list else "a value", value)
            return None
        return Predicate(entry["column"], comparison, value)

    def _caps(self, given: Any) -> dict[str, int]:
        if not isinstance(given, Mapping):
            self._wrong(("caps",), "columns, each with a number of items", given)
            return {}
        found = {}
        for column, most in given.items():
            if isinstance(most, bool) or not isinstance(most, int) or most < 1:
                self._wrong(("caps", column), "a whole number of at least 1", most)
            else:
                found[str(column)] = most
        return found

    def _wrong(self, place: KeyPath, expected: str, received: Any) -> None:
        text = received if isinstance(received, str) and ", " in received else describe(received)
        self.problems.append(Problem(str(self.path), place, expected, text, self.line_of(place)))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
