"""Lines of a Criteo log become arrays: numba loops over their bytes."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from .criteo_columns import FIELDS, KEYS, LEAST_NUMBER, MISSING_KEY, NUMBERS

GOOD, NO_LABEL, NO_NUMBER, LOW_NUMBER, NO_KEY, WIDE_KEY = range(6)
"""What is wrong with a line."""
TAB, LINE_FEED, CARRIAGE_RETURN, MINUS, ZERO = 9, 10, 13, 45, 48
MOST_DIGITS = 18
LAST_BEFORE_WIDE = (1 << 28) - 1
"""The largest key to which one more hexadecimal digit can be added within 32 bits."""
DIGITS = np.full(256, -1, np.int64)
"""The value of each byte as a hexadecimal digit."""
DIGITS[[*b"0123456789abcdef"]] = range(16)
DIGITS[[*b"ABCDEF"]] = range(10, 16)


@numba.njit(cache=True, nogil=True)
def parse_lines(
    text: npt.NDArray[np.uint8],
    labels: npt.NDArray[np.int8],
    numbers: npt.NDArray[np.float32],
    keys: npt.NDArray[np.int64],
    bad: npt.NDArray[np.int64],
) -> Any:
    """Read lines; those that cannot be read are left out and listed.

    Args:
        text: [bytes] Whole lines, the last of which ends with a line feed; empty ones are passed
            over.
        labels: [lines] Filled: 0 or 1.
        numbers: [13, lines] Filled: NaN where there is none.
        keys: [26, lines] Filled: ``MISSING_KEY`` where there is none.
        bad: [lines, 5] Filled: line (from 1), where it begins and ends, what is wrong, in which
            field.

    Returns:
        How many rows were read, how many are bad, how many lines there are.
    """
    rows = wrong = line = position = 0
    while position < len(text):
        line += 1
        start = position
        code, where, position = parse_fields(text, start, rows, labels, numbers, keys)
        end = position
        while text[end] != LINE_FEED:
            end += 1
        position = end + 1
        if end == start or (end == start + 1 and text[start] == CARRIAGE_RETURN):
            continue
        if code == GOOD:
            rows += 1
            continue
        bad[wrong] = line, start, end, code, where
        wrong += 1
    return rows, wrong, line


@numba.njit(cache=True, nogil=True)
def parse_fields(
    text: npt.NDArray[np.uint8],
    position: int,
    row: int,
    labels: npt.NDArray[np.int8],
    numbers: npt.NDArray[np.float32],
    keys: npt.NDArray[np.int64],
) -> Any:
    """Read the fields of a line up to the first that is wrong.

    Returns:
        What is wrong, in which field, and how far the line was read.
    """
    label = np.int64(text[position]) - ZERO
    if not 0 <= label <= 1:
        return NO_LABEL, 0, position
    labels[row] = label
    position += 1
    for field in range(NUMBERS):
        if text[position] != TAB:
            return NO_NUMBER if field else NO_LABEL, field, position
        position += 1
        negative = text[position] == MINUS
        position += negative
        first = position
        value = np.int64(0)
        digit = np.int64(text[position]) - ZERO
        while 0 <= digit <= 9:
            value = value * 10 + digit
            position += 1
            digit = np.int64(text[position]) - ZERO
        digits = position - first
        if digits > MOST_DIGITS or (negative and digits == 0):
            return NO_NUMBER, field + 1, position
        value = -value if negative else value
        if value < LEAST_NUMBER:
            return LOW_NUMBER, field + 1, position
        numbers[field, row] = value if digits else np.nan
    for field in range(KEYS):
        if text[position] != TAB:
            return NO_KEY if field else NO_NUMBER, NUMBERS + field, position
        position += 1
        first = position
        value = np.int64(0)
        digit = DIGITS[text[position]]
        while digit >= 0 and value <= LAST_BEFORE_WIDE:
            value = value * 16 + digit
            position += 1
            digit = DIGITS[text[position]]
        if digit >= 0:
            return WIDE_KEY, NUMBERS + 1 + field, position
        keys[field, row] = value if position > first else MISSING_KEY
    if text[position] == CARRIAGE_RETURN and text[position + 1] == LINE_FEED:
        position += 1
    if text[position] != LINE_FEED:
        return NO_KEY, FIELDS - 1, position
    return GOOD, 0, position
