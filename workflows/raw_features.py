"""A column of a log becomes what its feature makes of it, and says which rows cannot be read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from .feature import AnyFeature, Category, KeyList, Number, Time, Vector
from .fitted_numbers import FittedNumbers, expected_of
from .raw_values import (
    EXPECTED_NUMBER,
    Mask,
    can_be_list,
    can_be_number,
    can_be_vector,
    is_words,
    lists_of,
    numbers_of,
    vectors_of,
)
from .times import EXPECTED_DATE, circle_of, seconds_of


@dataclass(frozen=True)
class ReadFeature:
    """Values that were read of a column."""

    name: str
    stored: dict[str, pa.Array]
    """By name on the way through the workflow."""
    bad: Mask
    """Rows that cannot be read."""
    expected: str
    """What was expected of them."""


def fits_feature(feature: AnyFeature, kind: pa.DataType) -> tuple[bool, str]:
    """Whether a column of a type may become a feature, and what was expected."""
    if isinstance(feature, Time):
        is_date = pa.types.is_timestamp(kind) or pa.types.is_date(kind) or is_words(kind)
        if feature.unit is None:
            return is_date, "dates, or text of them (`unit` says what numbers count)"
        return is_date or can_be_number(kind), "dates, or numbers or text of them"
    if isinstance(feature, Vector):
        return can_be_vector(kind), "lists of numbers, or text of them"
    if isinstance(feature, KeyList):
        return can_be_list(kind), "lists of keys, or text of them"
    if isinstance(feature, Category):
        return can_be_number(kind), "numbers, or text"
    return can_be_number(kind), "numbers, or text of them"


def read_unfit(feature: AnyFeature, read: ReadFeature, fitted: FittedNumbers) -> ReadFeature | None:
    """Return which numbers that were read do not fit their operators; None for other features."""
    if not isinstance(feature, Number) or not feature.operators:
        return None
    numbers = np.asarray(read.stored[feature.name].fill_null(np.nan))
    bad = fitted.unfit(feature, numbers) & ~read.bad
    return ReadFeature(feature.name, {}, bad, expected_of(feature))


def read_feature(feature: AnyFeature, values: pa.Array, seconds: pa.Array | None) -> ReadFeature:
    """Read a column; its seconds since 1970 may have been read already."""
    name, nowhere = feature.name, np.zeros(len(values), bool)
    if isinstance(feature, Number):
        numbers, bad = numbers_of(values)
        if not feature.may_be_missing:
            bad = bad | np.asarray(numbers.is_null())
            expected = f"{EXPECTED_NUMBER} (FillMissing or FillMedian fills what is missing)"
            return ReadFeature(name, {name: numbers}, bad, expected)
        return ReadFeature(name, {name: numbers}, bad, EXPECTED_NUMBER)
    if isinstance(feature, Time):
        bad = nowhere
        if seconds is None:
            seconds, bad = seconds_of(values, feature.unit)
        circle = circle_of(seconds, name, feature.cycles)
        expected = EXPECTED_DATE if feature.unit is None else EXPECTED_NUMBER
        return ReadFeature(name, {k: pa.array(v) for k, v in circle.items()}, bad, expected)
    if isinstance(feature, Vector):
        vectors, bad = vectors_of(values, feature.size)
        expected = f"{feature.size} numbers, as a list or between |"
        return ReadFeature(name, {name: vectors}, bad, expected)
    if isinstance(feature, KeyList):
        lists, bad = lists_of(values, feature.separator)
        return ReadFeature(name, {name: lists}, bad, "UTF-8")
    return ReadFeature(name, {}, nowhere, "")
