"""All features beside ids that a log is read for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .feature import (
    INTERACTION,
    ITEM,
    USER,
    AnyFeature,
    Category,
    Cross,
    Encoding,
    KeyList,
    Number,
    Time,
    Vector,
)

TARGET_SUFFIX = "_trgt"
SINCE_SUFFIX = "_since_pos"


@dataclass(frozen=True)
class FeatureSet:
    """What ``--features`` names; nothing by default.

    >>> features = FeatureSet((Number("price", ITEM), Time("when", INTERACTION, ("hour",))))
    >>> features.target_numbers, features.beside_user
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

    def __bool__(self) -> bool:
        """Tell whether there is any."""
        return bool(self.features or self.crosses or self.encodings or self.time_intervals)

    def __iter__(self) -> Iterator[AnyFeature]:
        """Go through the features."""
        return iter(self.features)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the log that they are made of."""
        return tuple(feature.name for feature in self.features)

    def numbers(self, of: str) -> tuple[str, ...]:
        """Name the columns of numbers that are somebody's, as they are stored on the way."""
        kinds = (Number, Time)
        return tuple(
            name
            for feature in self.features
            if isinstance(feature, kinds) and feature.of == of
            for name in feature.stored
        )

    def bucketed(self, of: str) -> tuple[Number, ...]:
        """Give the numbers that become ids."""
        numbers = (feature for feature in self.features if isinstance(feature, Number))
        return tuple(n for n in numbers if n.of == of and n.buckets is not None)

    def categories(self, of: str) -> tuple[str, ...]:
        """Name the further columns of ids: of numbers in buckets, and of decimal categories."""
        return tuple(
            feature.name
            for feature in self.features
            if feature.of == of
            and (
                isinstance(feature, Category)
                or (isinstance(feature, Number) and feature.buckets is not None)
            )
        )

    @property
    def vectors(self) -> tuple[Vector, ...]:
        """The vectors of items."""
        return tuple(feature for feature in self.features if isinstance(feature, Vector))

    @property
    def lists(self) -> tuple[KeyList, ...]:
        """The lists of items."""
        return tuple(feature for feature in self.features if isinstance(feature, KeyList))

    @property
    def lagging(self) -> tuple[Number, ...]:
        """Give the numbers whose values some interactions ago are read too."""
        numbers = (feature for feature in self.features if isinstance(feature, Number))
        return tuple(number for number in numbers if number.lags)

    @property
    def encoded(self) -> tuple[str, ...]:
        """Name the numbers that count what came before."""
        return tuple(name for encoding in self.encodings for name in encoding.names)

    @property
    def needs_seconds(self) -> bool:
        """Whether more of a timestamp counts than its order."""
        return bool(self.encodings) or self.time_intervals is not None

    @property
    def beside_user(self) -> tuple[str, ...]:
        """The dataset's columns of numbers beside the user: the user's own, the interaction's."""
        lagged = (name for number in self.lagging for name in number.lagged)
        return (*self.numbers(USER), *self.numbers(INTERACTION), *lagged)

    @property
    def target_numbers(self) -> tuple[str, ...]:
        """The dataset's columns of numbers and vectors of the target item."""
        vectors = (feature.name for feature in self.vectors)
        names = (*self.numbers(ITEM), *self.encoded, *vectors)
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
            plain["crosses"] = {cross.name: cross.to_plain() for cross in self.crosses}
        if self.encodings:
            plain["encodings"] = {e.column: list(e.kinds) for e in self.encodings}
            plain["smoothing"] = self.smoothing
        return plain


NO_FEATURES = FeatureSet()
