"""Times of a log, of any type, as the numbers that they are sorted and compared by.

Files, frames, the operators, ``--test_from`` and earlier histories all read their times here; so
do features, as seconds since 1970 and as points on the circles of hour, weekday and month.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..foundation.exceptions import MerlinSimError
from .feature import CYCLES, ORDER, PARTS, UNITS
from .raw_values import (
    LARGEST_OF_64_BITS,
    decoded,
    decoded_text,
    numbers_of,
    refuse_nulls,
    whole_or_in_pieces,
)

EXPECTED_DATE = "a date and time such as 2014-07-23 10:00:00 (`unit` says what numbers count)"

OFFSET = r"(:\d\d(?:[.]\d+)?) ?([+-]\d\d(?::?\d\d)?)$"
"""How far from UTC a time is, and the minutes or seconds that it stands behind."""


def seconds_of(values: pa.Array, unit: str | None) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Read times of any type: seconds since 1970 in UTC, null for none; and which are no times.

    ``unit`` is what numbers count, or that they are an order; where it is None, text is dates, and
    numbers count seconds.
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.dictionary_decode(), kind.value_type
    if pa.types.is_date(kind):
        values, kind = pc.cast(values, pa.timestamp("s"), safe=False), pa.timestamp("s")
    if pa.types.is_timestamp(kind):
        counts = pc.cast(pc.cast(values, pa.int64()), pa.float64(), safe=False)
        return pc.multiply(counts, UNITS[kind.unit]), np.zeros(len(values), bool)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if is_number or unit is not None:
        numbers, bad = numbers_of(values, largest=LARGEST_OF_64_BITS)
        return pc.multiply(numbers, UNITS.get(str(unit), 1.0)), bad
    text, is_bad = decoded_text(values)
    micros = whole_or_in_pieces(text, micros_of_text, pa.int64())
    is_bad |= np.asarray(pc.and_(micros.is_null(), text.is_valid()))
    return pc.multiply(pc.cast(micros, pa.float64(), safe=False), 1e-6), is_bad


def parsed_seconds(values: pa.Array, unit: str | None) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Read single times of a request: numbers, and text of numbers, count ``unit``; or dates.

    >>> parsed_seconds(pa.array(["5000", "1970-01-01 00:00:07"]), "ms")[0].to_pylist()
    [5.0, 7.0]
    """
    numbers, is_none = numbers_of(values, LARGEST_OF_64_BITS)
    seconds = pc.multiply(numbers, UNITS.get(str(unit), 1.0))
    if not is_none.any():
        return seconds, is_none
    dates, bad = seconds_of(values, None)
    return pc.if_else(pa.array(is_none), dates, seconds), bad & is_none


def micros_of_text(text: pa.Array) -> pa.Array:
    """Dates and times of ISO 8601 as microseconds since 1970; without an offset they are in UTC.

    >>> micros_of_text(pa.array(["1970-01-01T00:00:01.0000029Z", "1970-01-01 01:00+00:59"]))
    <pyarrow.lib.Int64Array object at ...>
    [
      1000002,
      60000000
    ]
    """
    try:
        return pc.cast(pc.cast(text, pa.timestamp("us")), pa.int64())
    except pa.ArrowInvalid:
        pass
    # Arrow cuts no digits of a second, and takes offsets only of times that all have one.
    nothing = pa.scalar(None, pa.string())
    text = pc.replace_substring_regex(text, r"([.]\d{6})\d+", r"\1")
    text = pc.replace_substring_regex(text, r" ?[Zz]$", "+00:00")
    text = pc.replace_substring_regex(text, OFFSET, r"\1\2")
    has_offset = pc.match_substring_regex(text, OFFSET)
    local = pc.cast(pc.if_else(has_offset, nothing, text), pa.timestamp("us"))
    elsewhere = pc.cast(pc.if_else(has_offset, text, nothing), pa.timestamp("us", "UTC"))
    return pc.coalesce(pc.cast(local, pa.int64()), pc.cast(elsewhere, pa.int64()))


def steps_of(seconds: npt.NDArray[np.float64], cycle: str) -> npt.NDArray[np.float64]:
    """The hour, the weekday (Monday is 0) or the month (January is 0) of times in UTC.

    >>> [int(steps_of(np.array([1_704_290_400.0]), c)[0]) for c in ("hour", "weekday", "month")]
    [14, 2, 0]
    """
    if cycle == "hour":
        steps = np.floor(seconds / 3600) % CYCLES[cycle]
    elif cycle == "weekday":
        steps = (np.floor(seconds / 86400) + 3) % CYCLES[cycle]  # 1970 began on a Thursday
    else:
        days = np.floor(np.nan_to_num(seconds) / 86400).astype("datetime64[D]")
        steps = days.astype("datetime64[M]").astype(np.int64) % CYCLES[cycle]
    return np.asarray(steps, np.float64)


def circle_of(seconds: pa.Array, name: str, cycles: tuple[str, ...]) -> dict[str, Any]:
    """Sine and cosine of each cycle of times; both are 0 where the time is missing.

    >>> found = circle_of(pa.array([21_600.0, None]), "when", ("hour",))
    >>> {name: [round(value, 3) for value in values] for name, values in found.items()}
    {'when_hour_sin': [1.0, 0.0], 'when_hour_cos': [0.0, 0.0]}
    """
    numbers = np.asarray(seconds.fill_null(np.nan))
    missing = np.isnan(numbers)
    found = {}
    for cycle in cycles:
        angle = steps_of(numbers, cycle) * (2 * np.pi / CYCLES[cycle])
        for part, value in zip(PARTS, (np.sin(angle), np.cos(angle)), strict=True):
            found[f"{name}_{cycle}_{part}"] = np.where(missing, 0.0, value)
    return found


INTEGER, DECIMAL, DATE = "int", "float", "date in us"
"""What text is; of its dates and times microseconds are counted."""
LARGEST = 2**63 - 1
TIMES = {INTEGER: pa.int64(), DECIMAL: pa.float64(), DATE: pa.int64()}
EXPECTED_TIME = {
    INTEGER: "a whole number",
    DECIMAL: "a number",
    DATE: "a date and time such as 2014-07-23 10:00:00",
}
NANOSECONDS = {
    "date in ns": 1,
    "date in us": 1_000,
    "date in ms": 1_000_000,
    "date in s": 1_000_000_000,
    "date in days": 86_400_000_000_000,
}
"""How long the unit is in which a log's dates are counted."""


def is_text(kind: pa.DataType) -> bool:
    """Whether a column is text; each of its times is then asked for as in CSV."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def kind_of_timestamp(values: pa.Array) -> str | None:
    """Return what the first value in a column of text is; None where there is no value."""
    for value in pc.cast(values, pa.binary()):
        text = (value.as_py() or b"").decode("utf-8", "replace").strip()
        if text:
            for kind in (INTEGER, DECIMAL, DATE):
                if _time_of_text(pa.array([text]), kind).null_count == 0:
                    return kind
            return DATE
    return None


def kind_of_times(kind: pa.DataType) -> str:
    """Return what the numbers are that a column of times becomes.

    >>> [kind_of_times(kind) for kind in (pa.int32(), pa.timestamp("ns"), pa.date32())]
    ['int', 'date in ns', 'date in days']
    """
    if pa.types.is_timestamp(kind):
        return f"date in {kind.unit}"
    if pa.types.is_date(kind):
        return "date in days" if pa.types.is_date32(kind) else "date in ms"
    return DECIMAL if pa.types.is_floating(kind) else INTEGER


def kind_of_column(values: pa.Array) -> str:
    """Return what a column of times becomes, text or not.

    >>> kind_of_column(pa.array(["2024-01-01T12:00:00Z"])), kind_of_column(pa.array(["12"]))
    ('date in us', 'int')
    """
    if not is_text(values.type):
        return kind_of_times(values.type)
    return kind_of_timestamp(values) or INTEGER


def read_times(values: pa.Array, name: str) -> pa.Array:
    """A frame's column of times that can be sorted: text becomes numbers or timestamps in UTC.

    A row without a time is refused.

    >>> read_times(pa.array(["2024-01-01T12:00:00+05:30"]), "when")[0].as_py().isoformat()
    '2024-01-01T06:30:00'
    >>> read_times(pa.array(["9", "10"]), "when").to_pylist()
    [9, 10]
    """
    kind = kind_of_column(values)
    times, expected = times_of(values, kind)
    refuse_nulls(times, values, name, expected)
    return timestamps_of(times, kind) if is_text(values.type) else values


def timestamps_of(times: pa.Array, kind: str) -> pa.Array:
    """Numbers that stand for dates as timestamps again; all others as they are."""
    if kind not in NANOSECONDS:
        return times
    if kind == "date in days":
        return pc.cast(pc.multiply(times, 86_400), pa.timestamp("s"))
    return pc.cast(times, pa.timestamp(kind.rpartition(" ")[2]))


def times_of(values: pa.Array, kind: str) -> tuple[pa.Array, str]:
    """A column of times as numbers to sort by, null for none; and what is expected of a time.

    ``kind`` says what they are where they are text, those of CSV as bytes.
    """
    if pa.types.is_binary(values.type) or is_text(values.type):
        text = decoded(pc.cast(values, pa.binary()))
        return _time_of_text(text, kind), EXPECTED_TIME[kind]
    if pa.types.is_floating(values.type):
        numbers = pc.cast(values, pa.float64())
        nothing = pa.scalar(None, pa.float64())
        return pc.if_else(pc.is_finite(numbers), numbers, nothing), EXPECTED_TIME[DECIMAL]
    if pa.types.is_date32(values.type):
        values = pc.cast(values, pa.int32())
    return whole_numbers(values), EXPECTED_TIME[INTEGER]


def time_from_text(text: str, kind: str | pa.DataType) -> tuple[int | float | None, str]:
    """A time as the number that a column becomes, None for another kind; and what is expected.

    ``kind`` is that of a column of text, or else the column's type.

    >>> time_from_text("1970-01-02", "date in us")
    (86400000000, 'a date and time such as 2014-07-23 10:00:00')
    >>> time_from_text("1970-01-02", pa.date32())[0], time_from_text("soon", pa.int32())
    (1, (None, 'a whole number'))
    """
    if not isinstance(kind, str) and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        time = _time_of_text(pa.array([text]), DATE)  # microseconds
        plain = pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) else kind
        values = pc.cast(pc.cast(time, pa.timestamp("us")), plain, safe=False)
        return times_of(values, DATE)[0][0].as_py(), EXPECTED_TIME[DATE]
    if not isinstance(kind, str):
        kind = DECIMAL if pa.types.is_floating(kind) else INTEGER
    return _time_of_text(pa.array([text]), kind)[0].as_py(), EXPECTED_TIME[kind]


def text_of_time(time: float, kind: str) -> str:
    """A time as a person writes it: the inverse of :func:`time_from_text`.

    >>> text_of_time(7, "int"), text_of_time(86_400_000_000, "date in us")
    ('7', '1970-01-02T00:00:00')
    """
    if kind not in NANOSECONDS:
        return str(time)
    return str(timestamps_of(pa.array([int(time)]), kind)[0].as_py().isoformat())


def count_of_date(text: str, unit: str) -> int | None:
    """A date as so many seconds, milliseconds... since 1970; None where it is none.

    >>> count_of_date("1970-01-01T00:01:00Z", "ms"), count_of_date("soon", "s")
    (60000, None)
    """
    micros = _time_of_text(pa.array([text]), DATE)[0].as_py()
    return None if micros is None else micros * 1_000 // NANOSECONDS[f"date in {unit}"]


def _time_of_text(text: pa.Array, kind: str) -> pa.Array:
    text = pc.utf8_trim_whitespace(text)
    return whole_or_in_pieces(text, lambda part: _cast_time(part, kind), TIMES[kind])


def _cast_time(text: pa.Array, kind: str) -> pa.Array:
    if kind == DATE:
        return micros_of_text(text)
    numbers = pc.cast(text, TIMES[kind])
    if kind == DECIMAL and not pc.all(pc.is_finite(numbers)).as_py():
        raise pa.ArrowInvalid("not a finite number")
    return numbers


def whole_numbers(values: pa.Array) -> pa.Array:
    """Whole numbers of any width as int64; null where they are too large for it."""
    if pa.types.is_uint64(values.type):
        fits = pc.less_equal(values, pa.scalar(LARGEST, pa.uint64()))
        values = pc.if_else(fits, values, pa.scalar(None, pa.uint64()))
    return pc.cast(values, pa.int64())


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


def joined(ranges: Iterable[TimeRange | None]) -> TimeRange | None:
    """The range of all of them; None where there is none."""
    found = [times for times in ranges if times is not None]
    if not found:
        return None
    first = min(found, key=lambda times: times.first)
    last = max(found, key=lambda times: times.last)
    return TimeRange(first.first, last.last, first.first_file, last.last_file)


@dataclass(frozen=True)
class LogTimes:
    """The times of a log, whose unit is known.

    >>> print(LogTimes(TimeRange(1_704_067_200, 1_704_067_260, "a.csv", "a.csv"), "int", "s"))
    1704067200 (2024-01-01T00:00:00Z) to 1704067260 (2024-01-01T00:01:00Z), seconds since 1970
    """

    range: TimeRange
    kind: str
    """See :meth:`~merlin_sim.workflows.table_log.TableLog.time_kind`."""
    unit: str
    """What numbers count, or that they are an order; dates have a kind in its place."""

    def shown(self, time: Number) -> str:
        """A time as messages show it: a number with the date that it stands for."""
        if self.kind in NANOSECONDS:
            return date_text(_seconds(time, self.kind, self.unit))
        if self.unit == ORDER:
            return str(time)
        return f"{time} ({date_text(_seconds(time, self.kind, self.unit))})"

    def __str__(self) -> str:
        ends = f"{self.shown(self.range.first)} to {self.shown(self.range.last)}"
        if self.kind in NANOSECONDS:
            return ends
        if self.unit == ORDER:
            return f"{ends}, an order (`--timestamp_unit` says what numbers count)"
        return f"{ends}, {UNIT_WORDS[self.unit]} since 1970"


def known_times(
    times: TimeRange, kind: str, unit: str | None, needs_unit: bool, column: str
) -> LogTimes:
    """Decide what the times of a log count; refuse a unit that they cannot have.

    Numbers count seconds where no unit is given. Those that all lie before 1990 then are an order,
    such as 1, 2, 3, unless something needs more than their order.
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
        dates = " to ".join(date_text(_seconds(end, times.kind, unit)) for end in ends)
        return f"They fit {UNIT_WORDS[unit]} since 1970 ({dates}): give `--timestamp_unit {unit}`."
    if is_small:
        return (
            "Time intervals and cycles need more than an order of numbers: `--timestamp_unit` s, "
            "ms, us or ns says what they count."
        )
    units = [unit for end in ends for unit in UNITS if _is_reasonable(end, end, times.kind, unit)]
    if len(units) == len(ends) and units[0] != units[1]:
        first, last = (
            f"{end} fits {UNIT_WORDS[unit]} since 1970 "
            f"({date_text(_seconds(end, times.kind, unit))})"
            for end, unit in zip(ends, units, strict=True)
        )
        return f"The column mixes units: {first}, {last}. Bring it to one; {GO_ON}."
    return f"Correct or leave out what is wrong, or give the unit; {GO_ON}."


def _is_reasonable(first: Number, last: Number, kind: str, unit: str) -> bool:
    begin, end = (_seconds(time, kind, unit) for time in (first, last))
    return EARLIEST <= begin and end < LATEST and end - begin <= LONGEST_YEARS * YEAR


def _seconds(time: Number, kind: str, unit: str) -> float:
    if kind in NANOSECONDS:
        return int(time) * NANOSECONDS[kind] / 1e9
    return time * UNITS[unit]


def date_text(seconds: float) -> str:
    """A date and time of ISO 8601 in UTC, whole seconds."""
    if abs(seconds) > 2**60:
        return "beyond all dates"
    return f"{np.datetime64(int(np.floor(seconds)), 's')}Z"
