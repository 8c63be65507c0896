"""Times of a raw event, of which the time intervals are made that a model reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from ...schemas.channels import UNITS_OF_INTERVALS
from ...workflows.features.feature import FeatureSet
from ...workflows.features.raw_values import can_be_number
from ...workflows.logs.times import EXPECTED_DATE, moments_of, seconds_of
from ..limits import RequestError

HISTORY_TIMES = "history_times"
"""The key of the times of a history's interactions, as the log has them."""


@dataclass(frozen=True)
class EventTimes:
    """Makes time intervals of times, as the workflow makes them of the log's."""

    timestamp: str
    """The log's column of times; the key of the event's own time."""
    interval: str
    """The model's column of time intervals; the key of an event that brings them ready-made."""
    unit: str | None
    """What times that are numbers count, as ``s`` or ``ms``; None for seconds."""
    seconds: float
    """The unit of the intervals."""

    @classmethod
    def of(cls, features: FeatureSet, timestamp: str, interval: str) -> EventTimes | None:
        """Read them off a workflow; None where it makes no time intervals."""
        if features.time_intervals is None:
            return None
        seconds = UNITS_OF_INTERVALS[features.time_intervals]
        return cls(timestamp, interval, features.timestamp_unit, seconds)

    def needed(self, given: Any) -> tuple[str, ...]:
        """Name the keys that an event needs, by those that it has."""
        return (self.interval,) if self.interval in given else (HISTORY_TIMES, self.timestamp)

    def with_intervals(self, fields: Mapping[str, Any], length: int) -> Mapping[str, Any]:
        """Return an event whose times have become intervals.

        Args:
            fields: The event.
            length: Positions of its history.

        Raises:
            RequestError: Where there are both, or a time is none or later than the event's.
        """
        if HISTORY_TIMES not in fields:
            return fields
        if self.interval in fields:
            raise RequestError(
                f"expected either {HISTORY_TIMES!r} or {self.interval!r}, received both"
            )
        then = fields[HISTORY_TIMES]
        if not isinstance(then, list):
            raise RequestError(f"{HISTORY_TIMES}: expected a list, received {then!r:.60}")
        if len(then) != length:
            raise RequestError(
                f"{HISTORY_TIMES}: expected {length} times, one for each position of the history, "
                f"received {len(then)}"
            )
        (now,) = self._seconds([fields[self.timestamp]], [self.timestamp])
        where = [f"{HISTORY_TIMES}[{i}]" for i in range(len(then))]
        since = now - self._seconds(then, where)
        late = np.flatnonzero(since < 0)
        if len(late):
            raise RequestError(
                f"{where[late[0]]}: expected a time not after {self.timestamp!r} "
                f"({fields[self.timestamp]!s:.40}), received {then[late[0]]!s:.40}"
            )
        return {**fields, self.interval: (since / self.seconds).tolist()}

    def _seconds(self, values: list[Any], where: list[str]) -> np.ndarray[Any, Any]:
        """Read times of any form, each by itself where they are of several."""
        for value, place in zip(values, where, strict=True):
            if not isinstance(value, str | int | float | date) or isinstance(value, bool):
                raise RequestError(f"{place}: expected {EXPECTED_DATE}, received {value!r:.60}")
        raw = _arrow(values)
        if can_be_number(raw.type):
            seconds, bad = moments_of(raw, self.unit)
        else:
            seconds, bad = seconds_of(raw, self.unit)
        bad = bad | np.asarray(seconds.is_null())
        if bad.any():
            first = int(np.argmax(bad))
            raise RequestError(
                f"{where[first]}: expected {EXPECTED_DATE}, received {values[first]!r:.60}"
            )
        return np.asarray(seconds, np.float64)


def _arrow(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.string() if not values else None)
    except (pa.ArrowException, OverflowError, UnicodeError):
        # Of several types, or beyond them: as text, which tells a number from a date.
        return pa.array([str(value).encode("utf-8", "replace").decode() for value in values])
