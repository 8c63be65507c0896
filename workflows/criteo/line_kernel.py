"""Lines of a Criteo log become arrays: one numba loop over their bytes."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from .criteo_columns import FIELDS, LEAST_NUMBER, MISSING_KEY, NUMBERS

GOOD, WRONG_COUNT, NO_LABEL, NO_NUMBER, LOW_NUMBER, NO_KEY, WIDE_KEY = range(7)
"""What is wrong with a line."""
TAB, LINE_FEED, CARRIAGE_RETURN, MINUS = 9, 10, 13, 45
MOST_DIGITS = 18
LAST_BEFORE_WIDE = (1 << 28) - 1
"""The largest key to which one more hexadecimal digit can be added within 32 bits."""


@numba.njit(cache=True, nogil=True)
def digit_of(byte: int) -> int:
    """Return the value of a hexadecimal digit, -1 of anything else."""
    if 48 <= byte <= 57:
        return byte - 48
    if 97 <= byte <= 102:
        return byte - 87
    if 65 <= byte <= 70:
        return byte - 55
    return -1


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
        text: [bytes] Whole lines; empty ones are passed over.
        labels: [lines] Filled: 0 or 1.
        numbers: [13, lines] Filled: NaN where there is none.
        keys: [26, lines] Filled: ``MISSING_KEY`` where there is none.
        bad: [lines, 5] Filled: line (from 1), where it begins and ends, what is wrong, in which
            field (or how many there are).

    Returns:
        How many rows were read, how many are bad, how many lines there are.
    """
    rows = wrong = line = position = 0
    size = len(text)
    while position < size:
        line += 1
        start = position
        field = code = where = digits = 0
        value = np.int64(0)
        negative = False
        while True:
            ended = position == size or text[position] == LINE_FEED
            byte = TAB if ended else np.int64(text[position])
            if byte == TAB:
                if code == GOOD and field < FIELDS:
                    if field == 0:
                        if digits != 1 or value > 1:
                            code = NO_LABEL
                        labels[rows] = value
                    elif field <= NUMBERS:
                        number = -value if negative else value
                        if negative and digits == 0:
                            code = NO_NUMBER
                        elif number < LEAST_NUMBER:
                            code = LOW_NUMBER
                        numbers[field - 1, rows] = number if digits else np.nan
                    else:
                        keys[field - 1 - NUMBERS, rows] = value if digits else MISSING_KEY
                    where = field
                field += 1
                value = np.int64(0)
                digits = 0
                negative = False
                if ended:
                    break
            elif byte == CARRIAGE_RETURN and (
                position + 1 == size or text[position + 1] == LINE_FEED
            ):
                pass
            elif code == GOOD:
                where = field
                digit = digit_of(byte)
                if field > NUMBERS:
                    if digit < 0:
                        code = NO_KEY
                    elif value > LAST_BEFORE_WIDE:
                        code = WIDE_KEY
                    value = value * 16 + digit
                    digits += 1
                elif byte == MINUS and digits == 0 and not negative and field > 0:
                    negative = True
                elif digit < 0 or digit > 9 or digits == MOST_DIGITS:
                    code = NO_NUMBER if field else NO_LABEL
                else:
                    value = value * 10 + digit
                    digits += 1
            position += 1
        end = position
        position += 1
        if end == start or (end == start + 1 and text[start] == CARRIAGE_RETURN):
            continue
        if field != FIELDS:
            code = WRONG_COUNT
            where = field
        if code == GOOD:
            rows += 1
        else:
            bad[wrong, 0] = line
            bad[wrong, 1] = start
            bad[wrong, 2] = end
            bad[wrong, 3] = code
            bad[wrong, 4] = where
            wrong += 1
    return rows, wrong, line
