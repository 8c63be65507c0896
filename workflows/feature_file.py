"""Reads the features that a log is read for, from YAML, and reports all that is wrong at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..foundation.exceptions import KeyPath, Problem, SpecError, describe
from ..schemas.channels import UNITS_OF_INTERVALS
from ..schemas.yaml_document import read_yaml
from .feature import (
    CYCLES,
    ENCODINGS,
    INTERACTION,
    ITEM,
    LEVELS,
    OPERATORS,
    TIMESTAMP_UNITS,
    UNITS,
    AnyFeature,
    Category,
    Cross,
    Encoding,
    FeatureSet,
    KeyList,
    Number,
    NumberOperator,
    Time,
    Vector,
)

LARGEST_VECTOR = 4096
LONGEST_LIST = 1024
MOST_BUCKETS = 10_000
LONGEST_LAG = 1000
MOST_HASHES = 2**31 - 2
SECTIONS = (
    "features", "time_intervals", "timestamp_unit", "crosses", "encodings", "smoothing",
    "lifetime_counts",
)  # fmt: skip
KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "number": (LEVELS, ("operators", "buckets", "lags")),
    "time": (LEVELS, ("cycles", "unit")),
    "vector": ((ITEM,), ("size",)),
    "list": ((ITEM,), ("longest", "separator")),
    "category": (LEVELS, ()),
}
"""Type -> whose it may be, and the keys that it may have."""


def read_features(path: Path) -> FeatureSet:
    """Read a file of features; a SpecError has all that is wrong, each with its line."""
    node, problems = read_yaml(path)
    if node is None:
        raise SpecError(path, problems)
    reader = _FeatureReader(str(path), node.line_of, list(problems))
    features = reader.read(node.plain())
    if reader.problems:
        raise SpecError(path, sorted(reader.problems, key=lambda problem: problem.line or 0))
    return features


def features_from_plain(plain: Any, where: str) -> FeatureSet:
    """Read features as a workflow.json holds them."""
    reader = _FeatureReader(where, None, [])
    features = reader.read(plain)
    if reader.problems:
        raise SpecError(where, reader.problems)
    return features


@dataclass
class _FeatureReader:
    file: str
    line_of: Callable[[KeyPath], int] | None
    problems: list[Problem] = field(default_factory=list)

    def read(self, plain: Any) -> FeatureSet:
        if not isinstance(plain, Mapping):
            self._wrong((), "a mapping with `features`", plain)
            return FeatureSet()
        self._known((), plain, SECTIONS)
        what = "a mapping: column -> what becomes of it"
        found = [self._feature(*entry) for entry in self._section(plain, "features", what)]
        intervals = self._choice(("time_intervals",), plain, tuple(UNITS_OF_INTERVALS))
        unit = self._choice(("timestamp_unit",), plain, TIMESTAMP_UNITS)
        crosses = [self._cross(*entry) for entry in self._section(plain, "crosses")]
        encodings = [
            Encoding(column, kinds)
            for column, given in self._section(plain, "encodings")
            if (kinds := self._several(("encodings", column), given, ENCODINGS))
        ]
        lifetimes = plain.get("lifetime_counts", [])
        if not (lifetimes == [] or _are_different_words(lifetimes)):
            expected = "a list of columns: the item, or features of it"
            self._wrong(("lifetime_counts",), expected, lifetimes)
            lifetimes = []
        smoothing = plain.get("smoothing", 20.0)
        if not _is_number(smoothing) or smoothing < 0:
            self._wrong(("smoothing",), "a number of at least 0", smoothing)
            smoothing = 20.0
        features = FeatureSet(
            tuple(filter(None, found)),
            intervals,
            unit,
            tuple(filter(None, crosses)),
            tuple(encodings),
            float(smoothing),
            tuple(lifetimes),
        )
        if not features and unit is None and not self.problems:
            self._wrong(("features",), "at least one feature, or `time_intervals`", None)
        return features

    def _section(
        self, plain: Mapping[str, Any], name: str, expected: str = "a mapping"
    ) -> list[tuple[str, Any]]:
        entries = plain.get(name, {})
        if isinstance(entries, Mapping):
            return list(entries.items())
        self._wrong((name,), expected, entries)
        return []

    def _cross(self, name: str, entry: Any) -> Cross | None:
        path: KeyPath = ("crosses", name)
        if not isinstance(entry, Mapping):
            self._wrong(path, "a mapping with `columns` and `buckets`", entry)
            return None
        self._known(path, entry, ("columns", "buckets"))
        columns: Any = entry.get("columns")
        if not _are_different_words(columns) or len(columns) < 2:
            self._wrong((*path, "columns"), "a list of at least two features", columns)
            return None
        buckets = self._count((*path, "buckets"), entry.get("buckets"), MOST_HASHES)
        return Cross(name, tuple(columns), buckets)

    def _feature(self, name: str, entry: Any) -> AnyFeature | None:
        path: KeyPath = ("features", name)
        kind = entry.get("type") if isinstance(entry, Mapping) else None
        if not isinstance(entry, Mapping) or not isinstance(kind, str) or kind not in KEYS:
            expected = "a mapping with `type`: " + ", ".join(KEYS)
            self._wrong(path, expected, kind if isinstance(entry, Mapping) else entry)
            return None
        levels, more = KEYS[kind]
        self._known(path, entry, ("type", "of", *more))
        of = entry.get("of", levels[0] if len(levels) == 1 else None)
        if of not in levels:
            self._wrong((*path, "of"), f"whose it is: {' or '.join(levels)}", of)
            return None
        if kind == "number":
            return self._number(path, name, of, entry)
        if kind == "time":
            given = entry.get("cycles", list(CYCLES))
            cycles = self._several((*path, "cycles"), given, CYCLES) or tuple(CYCLES)
            return Time(name, of, cycles, self._choice((*path, "unit"), entry, tuple(UNITS)))
        if kind == "vector":
            return Vector(name, self._count((*path, "size"), entry.get("size"), LARGEST_VECTOR), of)
        if kind == "list":
            longest = self._count((*path, "longest"), entry.get("longest"), LONGEST_LIST)
            separator = entry.get("separator", "|")
            if not isinstance(separator, str) or not separator:
                self._wrong((*path, "separator"), "text", separator)
            return KeyList(name, longest, separator, of)
        return Category(name, of)

    def _number(self, path: KeyPath, name: str, of: str, entry: Mapping[str, Any]) -> Number:
        stated = entry.get("operators", [])
        if not isinstance(stated, list):
            self._wrong((*path, "operators"), "a list of NVTabular's operators", stated)
            stated = []
        operators = [
            self._operator((*path, "operators", index), given) for index, given in enumerate(stated)
        ]
        buckets = self._buckets((*path, "buckets"), entry.get("buckets"))
        lags = self._lags((*path, "lags"), of, entry.get("lags", []))
        if lags and buckets is not None:
            self._wrong((*path, "lags"), "none with `buckets`, which make ids", list(lags))
        return Number(name, of, tuple(filter(None, operators)), lags, buckets)

    def _lags(self, path: KeyPath, of: str, given: Any) -> tuple[int, ...]:
        fits = isinstance(given, list) and all(
            _is_whole(lag) and 1 <= lag <= LONGEST_LAG for lag in given
        )
        if not fits or len(set(given)) < len(given) or (given and of != INTERACTION):
            expected = f"of an {INTERACTION}'s number, a list of 1 to {LONGEST_LAG:,}"
            self._wrong(path, expected, given)
            return ()
        return tuple(given)

    def _operator(self, path: KeyPath, given: Any) -> NumberOperator | None:
        name: Any = given
        arguments: Any = {}
        if isinstance(given, Mapping) and len(given) == 1:
            ((name, arguments),) = given.items()
        if not isinstance(name, str) or name not in OPERATORS:
            self._wrong(path, "one of NVTabular's " + ", ".join(OPERATORS), name)
            return None
        known = OPERATORS[name]
        if not isinstance(arguments, Mapping) or not set(arguments) <= set(known):
            what = ", ".join(known) if known else "no arguments"
            self._wrong((*path, name), what, arguments)
            return None
        for key, value in arguments.items():
            if not _is_number(value):
                self._wrong((*path, name, key), "a number", value)
                return None
        if name == "Clip" and not arguments:
            self._wrong((*path, name), "min_value or max_value, or both", None)
            return None
        if len(arguments) > 1 and not arguments["min_value"] < arguments["max_value"]:
            self._wrong((*path, name), "a min_value below max_value", list(arguments.values()))
            return None
        return NumberOperator(name, {key: float(value) for key, value in arguments.items()})

    def _buckets(self, path: KeyPath, given: Any) -> int | tuple[float, ...] | None:
        if given is None or (_is_whole(given) and 2 <= given <= MOST_BUCKETS):
            return given  # type: ignore[no-any-return]
        if isinstance(given, list) and given and all(map(_is_number, given)):
            rises = all(first < second for first, second in itertools.pairwise(given))
            if rises and len(given) < MOST_BUCKETS:
                return tuple(map(float, given))
        self._wrong(path, f"2 to {MOST_BUCKETS:,}, or a list of numbers that rise", given)
        return None

    def _count(self, path: KeyPath, given: Any, most: int) -> int:
        if _is_whole(given) and 1 <= given <= most:
            return int(given)
        self._wrong(path, f"a whole number of 1 to {most:,}", given)
        return 1

    def _several(self, path: KeyPath, given: Any, of: Iterable[str]) -> tuple[str, ...]:
        """Some of a few words, each once; none where they are not."""
        if _are_different_words(given) and given and set(given) <= set(of):
            return tuple(given)
        self._wrong(path, f"a list of {', '.join(of)}", given)
        return ()

    def _choice(self, path: KeyPath, entry: Mapping[str, Any], of: Sequence[str]) -> str | None:
        given = entry.get(str(path[-1]))
        if given is None or given in of:
            return given
        self._wrong(path, " or ".join(of), given)
        return None

    def _known(self, path: KeyPath, entry: Mapping[str, Any], keys: tuple[str, ...]) -> None:
        for key in entry:
            if key not in keys:
                self._wrong((*path, key), f"one of {', '.join(keys)}", key)

    def _wrong(self, path: KeyPath, expected: str, received: Any) -> None:
        line = self.line_of(path) if self.line_of else None
        self.problems.append(Problem(self.file, path, expected, describe(received), line))


def _are_different_words(given: Any) -> bool:
    is_list = isinstance(given, list) and all(isinstance(word, str) for word in given)
    return is_list and len(set(given)) == len(given)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
