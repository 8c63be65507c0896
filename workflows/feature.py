"""Features other than keys that columns of a log may become, and their names in a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

from ..foundation.exceptions import MerlinSimError
from ..schemas.channels import UNITS_OF_INTERVALS
from ..schemas.users_layout import ENCODING_KINDS

USER, ITEM, INTERACTION = "user", "item", "interaction"
LEVELS = (USER, ITEM, INTERACTION)
CYCLES = {"hour": 24, "weekday": 7, "month": 12}
"""What a time may become, and how many steps bring it back to where it began."""
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""What numbers that are times may count, in seconds."""
ORDER = "order"
"""In place of a unit: the numbers are an order and nothing more."""
TIMESTAMP_UNITS = (*UNITS, ORDER)
FILLING = ("FillMissing", "FillMedian")
OPERATORS: dict[str, tuple[str, ...]] = {
    "FillMissing": ("fill_val",),
    "FillMedian": (),
    "Clip": ("min_value", "max_value"),
    "LogOp": (),
    "Normalize": (),
    "NormalizeMinMax": (),
}
"""NVTabular's operators that a number may go through, with their arguments."""


@dataclass(frozen=True)
class NumberOperator:
    """One of NVTabular's operators, by its name and arguments."""

    name: str
    arguments: Mapping[str, float]

    def to_plain(self) -> Any:
        """Return it as YAML has it."""
        return {self.name: dict(self.arguments)} if self.arguments else self.name


def require_count(what: str, value: Any) -> None:
    """Refuse what is no whole number above 0."""
    if type(value) is not int or value < 1:
        raise MerlinSimError(f"{what}: expected a whole number of 1 or more. Received: {value!r}.")


class _OfColumn:
    kind: ClassVar[str]
    """What YAML calls it."""

    def to_plain(self) -> dict[str, Any]:
        """Return it as YAML has it: what is not given is left out."""
        plain: dict[str, Any] = {"type": self.kind}
        for option in fields(self):  # type: ignore[arg-type]
            value = getattr(self, option.name)
            if option.name == "name" or value in (None, ()):
                continue
            if isinstance(value, tuple):
                value = [v.to_plain() if isinstance(v, NumberOperator) else v for v in value]
            plain[option.name] = value
        return plain


@dataclass(frozen=True)
class Number(_OfColumn):
    """A number, which operators bring to the range that a model likes, or buckets make an id."""

    kind: ClassVar[str] = "number"

    name: str
    """The log's column."""
    of: str
    """Whose it is: a user's or an item's, which have the one of their last interaction, or each
    interaction's own."""
    operators: tuple[NumberOperator, ...] = ()
    lags: tuple[int, ...] = ()
    """Of an interaction's number: its value so many interactions of the user ago, too."""
    buckets: int | tuple[float, ...] | None = None
    """So many buckets, each with about as many values, or where they begin; None for a number."""

    @property
    def may_be_missing(self) -> bool:
        """Whether something stands for a missing value."""
        fills = any(operator.name in FILLING for operator in self.operators)
        return fills or self.buckets is not None

    @property
    def stored(self) -> tuple[str, ...]:
        """The columns of numbers that it becomes; none where buckets make an id of it."""
        return () if self.buckets is not None else (self.name,)

    @property
    def lagged(self) -> dict[str, int]:
        """Name the columns of its values some interactions ago, and how many ago that is."""
        return {f"{self.name}_lag_{lag}": lag for lag in self.lags}


@dataclass(frozen=True)
class Time(_OfColumn):
    """A date and time as hour, weekday and month: each a point on a circle, sine and cosine."""

    kind: ClassVar[str] = "time"

    name: str
    of: str
    cycles: tuple[str, ...] = tuple(CYCLES)
    unit: str | None = None
    """Of times that are numbers since 1970: ``s``, ``ms``...; None where they are dates."""

    @property
    def stored(self) -> tuple[str, ...]:
        """The columns of numbers that it becomes; both are 0 where the time is missing."""
        return tuple(f"{self.name}_{cycle}_{part}" for cycle in self.cycles for part in PARTS)


PARTS = ("sin", "cos")


@dataclass(frozen=True)
class Vector(_OfColumn):
    """A vector of an item, brought to length 1; zeros where it is missing."""

    kind: ClassVar[str] = "vector"

    name: str
    size: int
    of: str = ITEM

    def __post_init__(self) -> None:
        require_count(f"the size of the vector {self.name!r}", self.size)


@dataclass(frozen=True)
class KeyList(_OfColumn):
    """Keys of an item without an order, such as genres: the mean of their vectors is read."""

    kind: ClassVar[str] = "list"

    name: str
    longest: int
    """How many of them are kept, the first."""
    separator: str = "|"
    """Between the keys, where they stand in one text."""
    of: str = ITEM

    def __post_init__(self) -> None:
        require_count(f"the longest list of {self.name!r}", self.longest)


@dataclass(frozen=True)
class Category(_OfColumn):
    """Decimal numbers that are names: 12.50 and 12.5 are one key, from CSV as from parquet."""

    kind: ClassVar[str] = "category"

    name: str
    of: str


@dataclass(frozen=True)
class Cross:
    """Keys that are looked at together: an id by a hash of theirs."""

    name: str
    columns: tuple[str, ...]
    """Features of users and items, as the log calls them."""
    buckets: int


COUNT, POPULARITY, RECENCY, RECENT_POPULARITY, TARGET = ENCODINGS = ENCODING_KINDS


@dataclass(frozen=True)
class Encoding:
    """Encodings of an item's key by all users' rows before a sample's own time."""

    column: str
    """The item, or one of its features."""
    kinds: tuple[str, ...]
    """``count``: log(1 + how often it was seen); ``popularity``: log(1 + how many of 100,000
    rows showed it); ``recency``: log(1 + whole days since it was last seen on an earlier day);
    ``recent_popularity``: as popularity, where a row's weight halves in a week;
    ``target``: at what share it was taken."""

    @property
    def names(self) -> tuple[str, ...]:
        """Name the columns of numbers."""
        return tuple(f"{self.column}_{kind}" for kind in self.kinds)

    @property
    def totals(self) -> dict[str, str]:
        """Name those that are the same at any time after the log, and the kind of each."""
        named = zip(self.names, self.kinds, strict=True)
        return {name: kind for name, kind in named if kind != RECENCY}

    @property
    def days(self) -> tuple[str, ...]:
        """Name what the others are made of: the last day of an item's key, and the one before."""
        stored = f"{self.column}_last_day", f"{self.column}_day_before"
        return stored if RECENCY in self.kinds else ()


AnyFeature = Number | Time | Vector | KeyList | Category
Kind = TypeVar("Kind", Number, Vector, KeyList)


TARGET_SUFFIX = "_trgt"
LIFETIME = "_lifetime_count"
"""After a column's name: how often its value stands in the user's whole history."""
SINCE_SUFFIX = "_since_pos"


@dataclass(frozen=True)
class FeatureSet:
    """Features that ``--features`` names; none by default.

    >>> features = FeatureSet((Number("price", ITEM), Time("when", INTERACTION, ("hour",))))
    >>> features.target_numbers, features.user_numbers
    (('price_trgt',), ('when_hour_sin', 'when_hour_cos'))
    """

    features: tuple[AnyFeature, ...] = ()
    time_intervals: str | None = None
    """The unit of the time between each interaction and the candidate; None for no such column."""
    timestamp_unit: str | None = None
    """What the log's timestamps count since 1970, where they are numbers; None for seconds. Those
    of the unit ``order`` are sorted by and nothing more."""
    crosses: tuple[Cross, ...] = ()
    encodings: tuple[Encoding, ...] = ()
    smoothing: float = 20.0
    """How many rows at the mean share are added to each key's own, for ``target``."""
    lifetime_counts: tuple[str, ...] = ()
    """The item, or features of it, whose occurrences in the user's whole history are counted."""

    def __post_init__(self) -> None:
        if self.time_intervals not in (None, *UNITS_OF_INTERVALS):
            raise MerlinSimError(
                f"`time_intervals` should be one of {', '.join(UNITS_OF_INTERVALS)}, or None. "
                f"Received: `time_intervals` = {self.time_intervals!r}."
            )

    def __bool__(self) -> bool:
        made = (self.features, self.crosses, self.encodings, self.lifetime_counts)
        return any(made) or self.time_intervals is not None

    def __iter__(self) -> Iterator[AnyFeature]:
        return iter(self.features)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the log that they are made of."""
        return tuple(feature.name for feature in self.features)

    def numbers(self, of: str) -> tuple[str, ...]:
        """Name the columns of numbers of a user or an item, as they are stored on the way."""
        return tuple(
            name
            for feature in self.features
            if isinstance(feature, Number | Time) and feature.of == of
            for name in feature.stored
        )

    def bucketed(self, of: str) -> tuple[Number, ...]:
        """Give the numbers that become ids."""
        return tuple(n for n in self._all(Number) if n.of == of and n.buckets is not None)

    def categories(self, of: str) -> tuple[str, ...]:
        """Name the further columns of ids: of numbers in buckets, and of decimal categories."""
        return tuple(
            feature.name
            for feature in self.features
            if feature.of == of
            and (isinstance(feature, Category) or getattr(feature, "buckets", None) is not None)
        )

    @property
    def vectors(self) -> tuple[Vector, ...]:
        """The vectors of items."""
        return self._all(Vector)

    @property
    def lists(self) -> tuple[KeyList, ...]:
        """The lists of items."""
        return self._all(KeyList)

    @property
    def lagging(self) -> tuple[Number, ...]:
        """Give the numbers whose values some interactions ago are read too."""
        return tuple(number for number in self._all(Number) if number.lags)

    def _all(self, kind: type[Kind]) -> tuple[Kind, ...]:
        return tuple(feature for feature in self.features if isinstance(feature, kind))

    @property
    def encoded(self) -> tuple[str, ...]:
        """Name the numbers that count what came before."""
        return tuple(name for encoding in self.encodings for name in encoding.names)

    @property
    def reads_days(self) -> bool:
        """Whether any number is made of a sample's day."""
        return any(encoding.days for encoding in self.encodings)

    @property
    def needs_unit(self) -> bool:
        """Whether anything is made of how much time passes, rather than of an order."""
        recent = any(RECENT_POPULARITY in encoding.kinds for encoding in self.encodings)
        return self.reads_days or recent or self.time_intervals is not None

    @property
    def needs_seconds(self) -> bool:
        """Whether more of a timestamp counts than its order."""
        return bool(self.encodings) or self.time_intervals is not None

    @property
    def user_numbers(self) -> tuple[str, ...]:
        """The dataset's columns of numbers of the user and of the interaction."""
        lagged = (name for number in self.lagging for name in number.lagged)
        return (*self.numbers(USER), *self.numbers(INTERACTION), *lagged)

    @property
    def target_numbers(self) -> tuple[str, ...]:
        """The dataset's columns of numbers and vectors of the target item."""
        vectors = (feature.name for feature in self.vectors)
        counts = (name + LIFETIME for name in self.lifetime_counts)
        names = (*self.numbers(ITEM), *self.encoded, *counts, *vectors)
        return tuple(name + TARGET_SUFFIX for name in names)

    @property
    def target_lists(self) -> tuple[str, ...]:
        """The dataset's columns of lists of the target item, each the name of its domain.

        A cross is a list of one.
        """
        lists = (feature.name for feature in self.lists)
        return (*lists, *(cross.name for cross in self.crosses))

    def to_plain(self) -> dict[str, Any]:
        """Return the set as YAML and JSON hold it."""
        plain: dict[str, Any] = {
            "features": {feature.name: feature.to_plain() for feature in self.features}
        }
        for name in ("time_intervals", "timestamp_unit"):
            if getattr(self, name) is not None:
                plain[name] = getattr(self, name)
        if self.crosses:
            plain["crosses"] = {
                cross.name: {"columns": list(cross.columns), "buckets": cross.buckets}
                for cross in self.crosses
            }
        if self.encodings:
            plain["encodings"] = {e.column: list(e.kinds) for e in self.encodings}
            plain["smoothing"] = self.smoothing
        if self.lifetime_counts:
            plain["lifetime_counts"] = list(self.lifetime_counts)
        return plain


NO_FEATURES = FeatureSet()
