"""Reads the features that a log is read for, from YAML, and tells all that is wrong at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...foundation.exceptions import SpecError
from ...foundation.problem import KeyPath, Problem, describe
from ...schemas.channels import UNITS_OF_INTERVALS
from ...schemas.specs.yaml_document import read_yaml
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
    Operator,
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
)  # fmt: skip
KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "number": (LEVELS, ("operators", "buckets", "lags")),
    "time": (LEVELS, ("cycles", "unit")),
    "vector": ((ITEM,), ("size",)),
    "list": ((ITEM,), ("longest", "separator")),
    "category": (LEVELS, ()),
}
"""Type -> whose it may be, and what may be said of it."""


def read_features(path: Path) -> FeatureSet:
    """Read a file of features.

    Raises:
        SpecError: With everything that is wrong, each with its line.
    """
    node, problems = read_yaml(path)
    if node is None:
        raise SpecError(path, problems)
    reader = _Reader(str(path), node.line_of, list(problems))
    features = reader.read(node.plain())
    if reader.problems:
        raise SpecError(path, sorted(reader.problems, key=lambda problem: problem.line or 0))
    return features


def features_from_plain(plain: Any, where: str) -> FeatureSet:
    """Read features as a workflow.json holds them.

    >>> features_from_plain({"features": {"price": {"type": "number", "of": "item"}}}, "x").columns
    ('price',)

    Raises:
        SpecError: Where they are none.
    """
    reader = _Reader(where, None, [])
    features = reader.read(plain)
    if reader.problems:
        raise SpecError(where, reader.problems)
    return features


@dataclass
class _Reader:
    file: str
    line_of: Callable[[KeyPath], int] | None
    problems: list[Problem] = field(default_factory=list)

    def read(self, plain: Any) -> FeatureSet:
        if not isinstance(plain, Mapping):
            self._wrong((), "a mapping with `features`", plain)
            return FeatureSet()
        self._known((), plain, SECTIONS)
        entries = plain.get("features", {})
        if not isinstance(entries, Mapping):
            self._wrong(("features",), "a mapping: column -> what becomes of it", entries)
            entries = {}
        found = [self._feature(name, entry) for name, entry in entries.items()]
        intervals = self._choice(("time_intervals",), plain, tuple(UNITS_OF_INTERVALS))
        unit = self._choice(("timestamp_unit",), plain, TIMESTAMP_UNITS)
        crosses = [self._cross(*entry) for entry in self._section(plain, "crosses")]
        encodings = [self._encoding(*entry) for entry in self._section(plain, "encodings")]
        smoothing = plain.get("smoothing", 20.0)
        if not _is_number(smoothing) or smoothing < 0:
            self._wrong(("smoothing",), "a number of at least 0", smoothing)
            smoothing = 20.0
        features = FeatureSet(
            tuple(f for f in found if f is not None),
            intervals,
            unit,
            tuple(cross for cross in crosses if cross is not None),
            tuple(encoding for encoding in encodings if encoding is not None),
            float(smoothing),
        )
        if not features and unit is None and not self.problems:
            self._wrong(("features",), "at least one feature, or `time_intervals`", None)
        return features

    def _section(self, plain: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
        entries = plain.get(name, {})
        if isinstance(entries, Mapping):
            return list(entries.items())
        self._wrong((name,), "a mapping", entries)
        return []

    def _cross(self, name: str, entry: Any) -> Cross | None:
        path: KeyPath = ("crosses", name)
        if not isinstance(entry, Mapping):
            self._wrong(path, "a mapping with `columns` and `buckets`", entry)
            return None
        self._known(path, entry, ("columns", "buckets"))
        columns = entry.get("columns")
        if (
            not isinstance(columns, list)
            or not all(isinstance(column, str) for column in columns)
            or len(columns) < 2
            or len(set(columns)) < len(columns)
        ):
            self._wrong((*path, "columns"), "a list of at least two features", columns)
            return None
        buckets = self._count((*path, "buckets"), entry.get("buckets"), MOST_HASHES)
        return Cross(name, tuple(columns), buckets)

    def _encoding(self, column: str, kinds: Any) -> Encoding | None:
        fits = isinstance(kinds, list) and kinds and all(isinstance(k, str) for k in kinds)
        if not fits or not set(kinds) <= set(ENCODINGS) or len(set(kinds)) < len(kinds):
            self._wrong(("encodings", column), f"a list of {', '.join(ENCODINGS)}", kinds)
            return None
        return Encoding(column, tuple(kinds))

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
        return getattr(self, f"_{kind}")(path, name, of, entry)  # type: ignore[no-any-return]

    def _number(self, path: KeyPath, name: str, of: str, entry: Mapping[str, Any]) -> Number:
        stated = entry.get("operators", [])
        if not isinstance(stated, list):
            self._wrong((*path, "operators"), "a list of NVTabular's operators", stated)
            stated = []
        places = enumerate(stated)
        operators = [self._operator((*path, "operators", place), given) for place, given in places]
        buckets = self._buckets((*path, "buckets"), of, entry.get("buckets"))
        lags = self._lags((*path, "lags"), of, entry.get("lags", []))
        if lags and buckets is not None:
            self._wrong((*path, "lags"), "none beside `buckets`, which make ids", list(lags))
        return Number(name, of, tuple(o for o in operators if o is not None), lags, buckets)

    def _lags(self, path: KeyPath, of: str, given: Any) -> tuple[int, ...]:
        fits = isinstance(given, list) and all(
            isinstance(lag, int) and not isinstance(lag, bool) and 1 <= lag <= LONGEST_LAG
            for lag in given
        )
        if not fits or len(set(given)) < len(given) or (given and of != INTERACTION):
            expected = f"of an {INTERACTION}'s number, a list of 1 to {LONGEST_LAG:,}"
            self._wrong(path, expected, given)
            return ()
        return tuple(given)

    def _operator(self, path: KeyPath, given: Any) -> Operator | None:
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
        if name == "Clip" and len(arguments) > 1 and not _rise(arguments):
            self._wrong((*path, name), "a min_value below max_value", list(arguments.values()))
            return None
        return Operator(name, {key: float(value) for key, value in arguments.items()})

    def _buckets(self, path: KeyPath, of: str, given: Any) -> int | tuple[float, ...] | None:
        if given is None:
            return None
        if isinstance(given, list):
            rises = all(map(_is_number, given)) and all(
                first < second for first, second in zip(given, given[1:], strict=False)
            )
            if given and rises and len(given) < MOST_BUCKETS:
                return tuple(map(float, given))
        elif isinstance(given, int) and not isinstance(given, bool) and 2 <= given <= MOST_BUCKETS:
            return given
        self._wrong(path, f"2 to {MOST_BUCKETS:,}, or a list of numbers that rise", given)
        return None

    def _time(self, path: KeyPath, name: str, of: str, entry: Mapping[str, Any]) -> Time:
        cycles = entry.get("cycles", list(CYCLES))
        fits = isinstance(cycles, list) and cycles and all(isinstance(c, str) for c in cycles)
        if not fits or not set(cycles) <= set(CYCLES) or len(set(cycles)) < len(cycles):
            self._wrong((*path, "cycles"), f"a list of {', '.join(CYCLES)}", cycles)
            cycles = list(CYCLES)
        unit = self._choice((*path, "unit"), entry, tuple(UNITS))
        return Time(name, of, tuple(cycles), unit)

    def _vector(self, path: KeyPath, name: str, of: str, entry: Mapping[str, Any]) -> Vector:
        return Vector(name, self._count((*path, "size"), entry.get("size"), LARGEST_VECTOR), of)

    def _list(self, path: KeyPath, name: str, of: str, entry: Mapping[str, Any]) -> KeyList:
        longest = self._count((*path, "longest"), entry.get("longest"), LONGEST_LIST)
        separator = entry.get("separator", "|")
        if not isinstance(separator, str) or not separator:
            self._wrong((*path, "separator"), "text", separator)
            separator = "|"
        return KeyList(name, longest, separator, of)

    def _category(self, path: KeyPath, name: str, of: str, entry: Mapping[str, Any]) -> Category:
        return Category(name, of)

    def _count(self, path: KeyPath, given: Any, most: int) -> int:
        if isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= most:
            return given
        self._wrong(path, f"a whole number of 1 to {most:,}", given)
        return 1

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


def _rise(bounds: Mapping[str, float]) -> bool:
    return bounds["min_value"] < bounds["max_value"]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
