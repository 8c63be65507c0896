"""Times of a log as seconds since 1970, and as places on the circles of hour, weekday and month."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .feature import CYCLES, ORDER, PARTS, UNITS
from .raw_numbers import LARGEST_OF_64_BITS, decoded_text, numbers_of, whole_or_in_pieces

EXPECTED_DATE = "a date and time such as 2014-07-23 10:00:00 (`unit` says what numbers count)"

ISO_8601 = (
    r"^(?P<moment>\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?)(?:(?P<micros>[.]\d{1,6})\d*)? ?"
    r"(?:[Zz]|(?P<sign>[+-])(?P<hours>[01]\d|2[0-3]):?(?P<minutes>(?:[0-5]\d)?))?$"
)


def seconds_of(values: pa.Array, unit: str | None) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Read times of any type.

    Args:
        values: Times, dates, or numbers or text of either.
        unit: What numbers count, or that they are an order; where it is None, text is dates, and
            numbers count seconds.

    Returns:
        Seconds since 1970 in UTC, null where there is no time; and which values are none.
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
        return pc.multiply(numbers, _seconds_each(unit)), bad
    text, is_bad = decoded_text(values)
    micros = whole_or_in_pieces(text, _micros, pa.float64())
    return pc.multiply(micros, 1e-6), is_bad | (np.asarray(micros.is_null()) & ~_is_null(text))


def _seconds_each(unit: str | None) -> float:
    """How long a unit is; of an order nobody asks for more than that."""
    return 1.0 if unit in (None, ORDER) else UNITS[str(unit)]


def moments_of(values: pa.Array, unit: str | None) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Read single times of a request: numbers, and text of numbers, count ``unit``; or dates.

    >>> moments_of(pa.array(["5000", "1970-01-01 00:00:07"]), "ms")[0].to_pylist()
    [5.0, 7.0]
    """
    numbers, is_none = numbers_of(values, LARGEST_OF_64_BITS)
    seconds = pc.multiply(numbers, _seconds_each(unit))
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

    Raises:
        pyarrow.ArrowInvalid: Where one is none.
    """
    try:
        return pc.cast(pc.cast(text, pa.timestamp("us")), pa.int64())
    except pa.ArrowInvalid:
        parts = pc.extract_regex(text, ISO_8601)
    # Arrow takes no offset, and cuts no digits of a second.
    whole = pc.binary_join_element_wise(
        pc.struct_field(parts, "moment"), pc.struct_field(parts, "micros"), ""
    )
    micros = pc.cast(pc.cast(pc.coalesce(whole, text), pa.timestamp("us")), pa.int64())
    named = ("hours", "minutes")
    counts = [_count_of(pc.struct_field(parts, name)) for name in named]
    ahead = pc.add(pc.multiply(counts[0], 3600), pc.multiply(counts[1], 60))
    is_behind = pc.fill_null(pc.equal(pc.struct_field(parts, "sign"), "-"), False)
    ahead = pc.multiply(pc.if_else(is_behind, pc.negate(ahead), ahead), 1_000_000)
    return pc.subtract(micros, ahead)


def _count_of(digits: pa.Array) -> pa.Array:
    """Whole numbers; 0 of no text."""
    given = pc.fill_null(pc.not_equal(digits, ""), False)
    return pc.cast(pc.if_else(given, digits, "0"), pa.int64())


def _micros(text: pa.Array) -> pa.Array:
    return pc.cast(micros_of_text(text), pa.float64(), safe=False)


def _is_null(array: pa.Array) -> npt.NDArray[np.bool_]:
    nulls: npt.NDArray[np.bool_] = np.asarray(array.is_null())
    return nulls


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
        for part, place in zip(PARTS, (np.sin(angle), np.cos(angle)), strict=True):
            found[f"{name}_{cycle}_{part}"] = np.where(missing, 0.0, place)
    return found
