"""From when to when a log is, in which unit, and whether that can be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...foundation.exceptions import MerlinSimError
from ..features.feature import ORDER, UNITS
from .times import NANOSECONDS

UNIT_WORDS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
EARLIEST = 631_152_000
"""1990 in seconds since 1970: an earlier time is more likely a mistake."""
LATEST = 4_102_444_800
"""2100. Between the two no number is a time in more than one unit."""
LONGEST_YEARS = 60
YEAR = 31_557_600
EXPECTED = f"expected times from 1990 to 2100 that lie at most {LONGEST_YEARS} years apart"
GO_ON = "`--timestamp_unit order` goes on with them as a mere order"
Number = int | float


@dataclass(frozen=True)
class TimeRange:
    """The first and the last time of some rows, and which file has it."""

    first: Number
    last: Number
    first_file: Path
    last_file: Path

    @classmethod
    def of(cls, times: pa.Array | pa.ChunkedArray, path: Path) -> TimeRange | None:
        """Find it; None where there is no row."""
        ends = pc.min_max(times).as_py()
        return None if ends["min"] is None else cls(ends["min"], ends["max"], path, path)

    def joined(self, other: TimeRange | None) -> TimeRange:
        """The range of both."""
        if other is None:
            return self
        first = min(self, other, key=lambda times: times.first)
        last = max(self, other, key=lambda times: times.last)
        return TimeRange(first.first, last.last, first.first_file, last.last_file)


def joined(ranges: Iterable[TimeRange | None]) -> TimeRange | None:
    """The range of all of them; None where there is none."""
    found = [times for times in ranges if times is not None]
    return reduce(TimeRange.joined, found) if found else None


@dataclass(frozen=True)
class LogTimes:
    """The times of a log, whose unit is known.

    >>> print(LogTimes(TimeRange(1_704_067_200, 1_704_067_260, "a.csv", "a.csv"), "int", "s"))
    1704067200 (2024-01-01T00:00:00Z) to 1704067260 (2024-01-01T00:01:00Z), seconds since 1970
    """

    range: TimeRange
    kind: str
    """See :meth:`~merlin_sim.workflows.logs.log_source.LogSource.time_kind`."""
    unit: str
    """What numbers count, or that they are an order; dates have a kind in its place."""

    def shown(self, time: Number) -> str:
        """A time as messages show it: a number with the date that it stands for."""
        if self.kind in NANOSECONDS:
            return _date(_seconds(time, self.kind, self.unit))
        if self.unit == ORDER:
            return str(time)
        return f"{time} ({_date(_seconds(time, self.kind, self.unit))})"

    def __str__(self) -> str:
        """Tell the first and the last."""
        ends = f"{self.shown(self.range.first)} to {self.shown(self.range.last)}"
        if self.kind in NANOSECONDS:
            return ends
        if self.unit == ORDER:
            return f"{ends}, an order (`--timestamp_unit` says what numbers count)"
        return f"{ends}, {UNIT_WORDS[self.unit]} since 1970"


def known_times(
    times: TimeRange, kind: str, unit: str | None, needs_unit: bool, column: str
) -> LogTimes:
    """Decide what the times of a log count.

    Numbers count seconds where no unit is given. Those that all lie before 1990 then are an order,
    such as 1, 2, 3, unless something needs more than their order.

    Args:
        times: The log's.
        kind: What they are.
        unit: What was given: one of ``TIMESTAMP_UNITS``, or None.
        needs_unit: Whether something is made of the times that needs more than their order.
        column: Their name.

    Raises:
        MerlinSimError: Where they cannot be times in that unit, with the one that would fit.
    """
    if unit == ORDER:
        return LogTimes(times, kind, ORDER)
    known = LogTimes(times, kind, unit or "s")
    if kind in NANOSECONDS:
        if not _is_reasonable(times.first, times.last, kind, "s"):
            raise MerlinSimError(f"{_beyond(known, column)}. If they are right, {GO_ON}.")
        return known
    if _is_reasonable(times.first, times.last, kind, known.unit):
        return known
    is_small = _seconds(times.last, kind, known.unit) < EARLIEST
    fitting = [name for name in UNITS if _is_reasonable(times.first, times.last, kind, name)]
    if is_small and not fitting and unit is not None:
        return known  # counted from a beginning of the log's own
    if is_small and not fitting and not needs_unit:
        return LogTimes(times, kind, ORDER)
    advice = _advice(known, fitting, is_small)
    raise MerlinSimError(f"{_beyond(known, column)}, as {UNIT_WORDS[known.unit]}. {advice}")


def _beyond(times: LogTimes, column: str) -> str:
    """Say which times, of which file, were not expected."""
    ends, later_file = times.range, ""
    if ends.first_file != ends.last_file:
        later_file = f" (in {ends.last_file})"
    return (
        f"{ends.first_file}: column {column!r}: {EXPECTED}, found {times.shown(ends.first)} to "
        f"{times.shown(ends.last)}{later_file}"
    )


def _advice(times: LogTimes, fitting: list[str], is_small: bool) -> str:
    """Say which unit would fit numbers, or that they have several."""
    ends = (times.range.first, times.range.last)
    if fitting:
        (unit,) = fitting
        dates = " to ".join(_date(_seconds(end, times.kind, unit)) for end in ends)
        return f"They fit {UNIT_WORDS[unit]} since 1970 ({dates}): give `--timestamp_unit {unit}`."
    if is_small:
        return (
            "Time intervals and cycles need more than an order of numbers: `--timestamp_unit` s, "
            "ms, us or ns says what they count."
        )
    units = [_unit_of(end, times.kind) for end in ends]
    if None not in units and units[0] != units[1]:
        first, last = (
            f"{end} fits {UNIT_WORDS[str(unit)]} since 1970 "
            f"({_date(_seconds(end, times.kind, str(unit)))})"
            for end, unit in zip(ends, units, strict=True)
        )
        return f"The column mixes units: {first}, {last}. Bring it to one; {GO_ON}."
    return f"Correct or leave out what is wrong, or give the unit; {GO_ON}."


def _unit_of(time: Number, kind: str) -> str | None:
    """The one unit in which a number is a time from 1990 to 2100."""
    return next((unit for unit in UNITS if _is_reasonable(time, time, kind, unit)), None)


def _is_reasonable(first: Number, last: Number, kind: str, unit: str) -> bool:
    begin, end = (_seconds(time, kind, unit) for time in (first, last))
    return EARLIEST <= begin and end < LATEST and end - begin <= LONGEST_YEARS * YEAR


def _seconds(time: Number, kind: str, unit: str) -> float:
    """Seconds since 1970."""
    if kind in NANOSECONDS:
        return int(time) * NANOSECONDS[kind] / 1e9
    return time * UNITS[unit]


def _date(seconds: float) -> str:
    """A date and time of ISO 8601 in UTC, whole seconds."""
    if abs(seconds) > 2**60:
        return "beyond all dates"
    return f"{np.datetime64(int(np.floor(seconds)), 's')}Z"
