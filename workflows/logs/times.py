"""Times of a log, of any type, as the numbers that they are sorted and compared by.

Files, frames, the operators, ``--test_from`` and earlier histories all read their times here.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...foundation.exceptions import MerlinSimError
from ..features.raw_times import micros_of_text

INTEGER, DECIMAL, DATE = "int", "float", "date"
TEXT_DATES = "date in us"
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
    """Tell what the first value in a column of text is; None where there is no value."""
    for value in pc.cast(values, pa.binary()):
        text = (value.as_py() or b"").decode("utf-8", "replace").strip()
        if text:
            for kind in (INTEGER, DECIMAL, DATE):
                if _time_of_text(pa.array([text]), kind).null_count == 0:
                    return kind
            return DATE
    return None


def kind_of_times(kind: pa.DataType) -> str:
    """Tell what the numbers are that a column of times becomes.

    >>> [kind_of_times(kind) for kind in (pa.int32(), pa.timestamp("ns"), pa.date32())]
    ['int', 'date in ns', 'date in days']
    """
    if pa.types.is_timestamp(kind):
        return f"date in {kind.unit}"
    if pa.types.is_date(kind):
        return "date in days" if pa.types.is_date32(kind) else "date in ms"
    return DECIMAL if pa.types.is_floating(kind) else INTEGER


def kind_of_column(values: pa.Array) -> str:
    """Tell what a column of times becomes, text or not.

    >>> kind_of_column(pa.array(["2024-01-01T12:00:00Z"])), kind_of_column(pa.array(["12"]))
    ('date in us', 'int')
    """
    if not is_text(values.type):
        return kind_of_times(values.type)
    kind = kind_of_timestamp(values) or INTEGER
    return TEXT_DATES if kind == DATE else kind


def read_times(values: pa.Array, name: str) -> pa.Array:
    """A frame's column of times that can be sorted: text becomes numbers or timestamps in UTC.

    >>> read_times(pa.array(["2024-01-01T12:00:00+05:30"]), "when")[0].as_py().isoformat()
    '2024-01-01T06:30:00'
    >>> read_times(pa.array(["9", "10"]), "when").to_pylist()
    [9, 10]

    Raises:
        MerlinSimError: With the first text that is no time.
    """
    if not is_text(values.type):
        return values
    kind = kind_of_timestamp(values) or INTEGER
    times, expected = times_of(values, kind)
    if times.null_count:
        row = pc.index(times.is_null(), True).as_py()
        found = values[row].as_py()
        raise MerlinSimError(
            f"the log, row {row + 1}: {name!r}: expected {expected}, found "
            f"{'nothing' if not found else repr(found)[:60]}."
        )
    return timestamps_of(times, TEXT_DATES) if kind == DATE else times


def timestamps_of(times: pa.Array, kind: str) -> pa.Array:
    """Numbers that stand for dates as timestamps again; all others as they are."""
    if kind not in NANOSECONDS:
        return times
    if kind == "date in days":
        return pc.cast(pc.multiply(times, 86_400), pa.timestamp("s"))
    return pc.cast(times, pa.timestamp(kind.rpartition(" ")[2]))


def times_of(values: pa.Array, kind: str) -> tuple[pa.Array, str]:
    """A column of times as the numbers that they are sorted by.

    Args:
        values: Times of any type, those of CSV as bytes.
        kind: What they are where they are text.

    Returns:
        The numbers, null where there is no time; and what is expected of a time.
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
    """A time as the numbers that a column of times becomes; None where it is of another kind.

    >>> time_from_text("1970-01-02", "date")
    (86400000000, 'a date and time such as 2014-07-23 10:00:00')
    >>> time_from_text("1970-01-02", pa.date32())[0], time_from_text("soon", pa.int32())
    (1, (None, 'a whole number'))

    Args:
        text: The time.
        kind: Of a column of text, its kind; else its type.

    Returns:
        The number, and what is expected of a text.
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

    Args:
        time: The number that a column of times holds.
        kind: What such numbers are, as :func:`kind_of_times` says.
    """
    if not kind.startswith("date in "):
        return str(time)
    counted = pa.scalar(int(time) * (86400 if kind == "date in days" else 1), pa.int64())
    unit = "s" if kind == "date in days" else kind.removeprefix("date in ")
    date: str = counted.cast(pa.timestamp(unit)).as_py().isoformat()
    return date


def count_of_date(text: str, unit: str) -> int | None:
    """A date as so many seconds, milliseconds... since 1970; None where it is none.

    >>> count_of_date("1970-01-01T00:01:00Z", "ms"), count_of_date("soon", "s")
    (60000, None)
    """
    micros = _time_of_text(pa.array([text]), DATE)[0].as_py()
    return None if micros is None else micros * 1_000 // NANOSECONDS[f"date in {unit}"]


def decoded(values: pa.Array) -> pa.Array:
    """Bytes as text; null where they are not valid UTF-8."""
    try:
        return pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        texts: list[str | None] = []
        for value in values.to_pylist():
            try:
                texts.append(None if value is None else value.decode("utf-8"))
            except UnicodeDecodeError:
                texts.append(None)
        return pa.array(texts, pa.string())


def _time_of_text(text: pa.Array, kind: str) -> pa.Array:
    """Text as times, null where it is none."""
    text = pc.utf8_trim_whitespace(text)
    try:
        return _cast_time(text, kind)
    except pa.ArrowInvalid:
        return pa.concat_arrays([_one_time(value, kind) for value in text])


def _one_time(value: Any, kind: str) -> pa.Array:
    try:
        return _cast_time(pa.array([value.as_py()], pa.string()), kind)
    except pa.ArrowInvalid:
        return pa.nulls(1, TIMES[kind])


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
