"""Rules of what may be recommended, and in which order: declared in one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...foundation.exceptions import KeyPath, MerlinSimError, Problem, SpecError, describe
from ...schemas.yaml_document import read_yaml

Compare = Callable[[pa.Array, Any], pa.Array]


def _is_in(facts: pa.Array, values: Any) -> pa.Array:
    # `is_in` says false of a missing fact; here it is missing, which fails the opposite too.
    found = pc.is_in(facts, value_set=values)
    return pc.if_else(pc.is_valid(facts), found, pa.scalar(None, pa.bool_()))


COMPARISONS: dict[str, Compare] = {
    "is": pc.equal,
    "is_not": pc.not_equal,
    "in": _is_in,
    "not_in": lambda facts, values: pc.invert(_is_in(facts, values)),
    "at_least": pc.greater_equal,
    "at_most": pc.less_equal,
}
OF_LISTS = ("in", "not_in")


@dataclass(frozen=True)
class UserFact:
    """A value that the request brings along, ``{user: age}``."""

    name: str


@dataclass(frozen=True)
class Predicate:
    """``column`` ``comparison`` ``value``, as ``least_age at_most {user: age}``.

    >>> ages = pa.array([18, 0, None, 12])
    >>> Predicate("least_age", "at_most", UserFact("age")).keep(ages, {"age": 12}).tolist()
    [False, True, False, True]
    """

    column: str
    """The fact of the item."""
    comparison: str
    """One of :data:`COMPARISONS`."""
    value: Any
    """A value, a list of them for ``in`` and ``not_in``, or a :class:`UserFact`."""

    def keep(self, facts: pa.Array, user: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
        """Say which items may be recommended; of one whose fact is missing that is not known."""
        value = self.value
        if isinstance(value, UserFact):
            if value.name not in user:
                raise MerlinSimError(
                    f"the rule for {self.column!r} needs the fact {value.name!r} of the user "
                    f"(`--fact {value.name}=...`, or among the `facts` of a request). "
                    f"Received: {', '.join(user) or 'none'}."
                )
            value = user[value.name]
        kept = COMPARISONS[self.comparison](facts, self.operand(value, facts.type))
        answer: npt.NDArray[np.bool_] = np.asarray(pc.fill_null(kept, False))
        return answer

    def operand(self, value: Any, kind: pa.DataType) -> Any:
        """Return a value, or a list of them, as what facts of this type are compared with."""
        try:
            if self.comparison in OF_LISTS:
                return pa.array(value if isinstance(value, list) else [value], kind)
            return pa.scalar(value, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise MerlinSimError(
                f"the rule for {self.column!r}: expected {kind}, as its facts are. "
                f"Received: {value!r:.60}"
            ) from error


KEYS = ("items", "seen", "filters", "caps", "diversity")
DROP, KEEP = "drop", "keep"


@dataclass(frozen=True)
class Rules:
    """Rules of what may be recommended, and in which order."""

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
    """Read a file of rules; a path in it is relative to it."""
    node, problems = read_yaml(path)
    if node is None:
        raise SpecError(path, problems)
    reader = _RulesReader(path, node.line_of, list(problems))
    rules = reader.read(node.plain())
    if reader.problems:
        raise SpecError(path, sorted(reader.problems, key=lambda problem: problem.line or 0))
    return rules


@dataclass
class _RulesReader:
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

    def _filter(self, key_path: KeyPath, entry: Any) -> Predicate | None:
        expected = "a column and one of " + ", ".join(COMPARISONS)
        if not isinstance(entry, Mapping) or not isinstance(entry.get("column"), str):
            self._wrong(key_path, expected, entry)
            return None
        named = [key for key in entry if key != "column"]
        if len(named) != 1 or named[0] not in COMPARISONS:
            self._wrong(key_path, expected, ", ".join(map(str, entry)))
            return None
        comparison, value = named[0], entry[named[0]]
        if isinstance(value, Mapping):
            if list(value) != ["user"] or not isinstance(value["user"], str):
                self._wrong((*key_path, comparison), "`user` with the name of a fact", value)
                return None
            return Predicate(entry["column"], comparison, UserFact(value["user"]))
        of_list = comparison in OF_LISTS
        if value is None or isinstance(value, list) != of_list or value == []:
            self._wrong(
                (*key_path, comparison), "a list of values" if of_list else "a value", value
            )
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

    def _wrong(self, key_path: KeyPath, expected: str, received: Any) -> None:
        text = received if isinstance(received, str) and ", " in received else describe(received)
        self.problems.append(
            Problem(str(self.path), key_path, expected, text, self.line_of(key_path))
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


def put_in_order(
    scores: Floats,
    vectors: Floats | None,
    top: int,
    caps: Sequence[tuple[Ids, int]] = (),
    diversity: float = 0.0,
) -> Ids:
    """Choose items one after the other.

    Each is the one with the largest (1 - diversity) x score - diversity x likeness, of those whose
    caps are not full: maximal marginal relevance (https://doi.org/10.1145/290941.291025). Scores
    are brought to 0..1 over the items; likeness is the largest cosine with an item above.
    Of equal ones the first given is taken.

    >>> like = np.array([[1, 0], [1, 0], [0, 1]], np.float32)
    >>> put_in_order(np.array([0.9, 0.8, 0.1], np.float32), like, 3, diversity=0.5).tolist()
    [0, 2, 1]
    >>> put_in_order(np.array([0.9, 0.8, 0.1], np.float32), None, 2, [(np.array([4, 4, 7]), 1)])
    array([0, 2])

    Args:
        scores: [items].
        vectors: [items, dim], of unit length; None where there are none, and no diversity.
        top: How many are wanted; fewer are chosen where caps leave fewer.
        caps: Of each cap, which value each item has, -1 for none, and how many of one value
            there may be.
        diversity: From 0, by score alone, to 1.

    Returns:
        Indices of items.
    """
    if not caps and (diversity == 0 or vectors is None):
        return np.argsort(-scores, kind="stable")[:top]
    low, high = scores.min(initial=np.inf), scores.max(initial=-np.inf)
    gain = (1 - diversity) * (scores - low) / max(high - low, 1e-12)
    likeness = np.zeros(len(scores), np.float32)
    free = np.ones(len(scores), bool)
    chosen: list[int] = []
    while len(chosen) < top and free.any():
        value = np.where(free, gain - diversity * likeness, -np.inf)
        best = int(np.argmax(value))
        chosen.append(best)
        free[best] = False
        for values, most in caps:
            if values[best] >= 0 and (values[chosen] == values[best]).sum() >= most:
                free &= values != values[best]
        if diversity and vectors is not None:
            cosines = vectors @ vectors[best]
            likeness = cosines if len(chosen) == 1 else np.maximum(likeness, cosines)
    return np.array(chosen, np.int64)
