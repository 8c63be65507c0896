"""Numbers of a log, from CSV as from parquet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

LARGEST = float(np.finfo(np.float32).max)
"""Models compute in 32 bits."""
LARGEST_OF_64_BITS = float(np.finfo(np.float64).max)
EXPECTED_NUMBER = "a number"
Mask = npt.NDArray[np.bool_]


def numbers_of(values: pa.Array, largest: float = LARGEST) -> tuple[pa.Array, Mask]:
    """Read numbers of any type, or text of them.

    >>> numbers, bad = numbers_of(pa.array([" 12.50 ", "", "dear", "nan", "1e300"]))
    >>> numbers.to_pylist(), bad.tolist()
    ([12.5, None, None, None, None], [False, False, True, False, True])

    Returns:
        float64, null where there is none; and which values are no numbers. NaN is a missing one.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    is_bad = np.zeros(len(values), bool)
    if is_words(values.type):
        text, is_bad = decoded_text(values)
        given = ~np.asarray(text.is_null())
        numbers = whole_or_in_pieces(text, lambda part: pc.cast(part, pa.float64()), pa.float64())
        is_bad |= given & np.asarray(numbers.is_null())
    elif pa.types.is_boolean(values.type):
        numbers = pc.cast(pc.cast(values, pa.int8()), pa.float64())
    else:
        numbers = pc.cast(values, pa.float64(), safe=False)
    plain = np.asarray(numbers.fill_null(np.nan))
    with np.errstate(invalid="ignore"):
        beyond = np.abs(plain) > largest
    missing = np.isnan(plain) | beyond
    return pa.array(plain, pa.float64(), mask=missing), is_bad | beyond


def can_be_number(kind: pa.DataType) -> bool:
    """Whether a column of this type may hold numbers."""
    if pa.types.is_dictionary(kind):
        return can_be_number(kind.value_type)
    tests = (
        is_words,
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_null,
    )
    return any(test(kind) for test in tests)


def is_words(kind: pa.DataType) -> bool:
    """Whether a column is text, or the bytes that CSV is read as."""
    tests = (
        pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def decoded_text(values: pa.Array) -> tuple[pa.Array, Mask]:
    """Text without the blanks around it, null where nothing is left; and what is not UTF-8."""
    words = pc.cast(values, pa.binary())
    was_null = np.asarray(words.is_null())
    try:
        text = pc.cast(words, pa.string())
    except pa.ArrowInvalid:
        text = pa.array([_decoded(word) for word in words.to_pylist()], pa.string())
    text = pc.utf8_trim_whitespace(text)
    is_bad = np.asarray(text.is_null()) & ~was_null
    empty = pc.equal(pc.binary_length(text), 0).fill_null(True)
    return pc.if_else(empty, pa.scalar(None, pa.string()), text), is_bad


def _decoded(word: bytes | None) -> str | None:
    try:
        return None if word is None else word.decode("utf-8")
    except UnicodeDecodeError:
        return None


def whole_or_in_pieces(text: pa.Array, read: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """Read a column in one go; value by value where that is refused, null for what is none."""
    try:
        return read(text)
    except pa.ArrowInvalid:
        distinct = text.dictionary_encode()
        words = distinct.dictionary
        pieces = [_one(words.slice(place, 1), read, kind) for place in range(len(words))]
        found = pa.concat_arrays(pieces) if pieces else pa.array([], kind)
        return found.take(distinct.indices)


def _one(word: pa.Array, read: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    try:
        return read(word)
    except pa.ArrowInvalid:
        return pa.nulls(1, kind)
