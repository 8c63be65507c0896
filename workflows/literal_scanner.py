"""A scanner for lines that are plain Python dict literals, as the Amazon metadata file has them.

It knows strings without escapes, numbers, True, False, None, lists and dicts. Whatever else a
line holds, the scanner does not judge it: it says "not plain", and the caller asks
:func:`ast.literal_eval`. What it does accept, literal_eval reads in the same way; the tests hold
one against the other.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
DEEPEST = 16
LONGEST_NUMBER = 18

# What may come next.
VALUE, VALUE_OR_END, KEY, KEY_OR_END, COLON, COMMA_OR_END, NOTHING = range(7)
# What a value was.
STRING, OTHER, CLOSED_LIST, CLOSED_DICT, NOT_PLAIN = range(5)
ASIN = np.frombuffer(b"asin", np.uint8)
CATEGORIES = np.frombuffer(b"categories", np.uint8)
WORDS = tuple(np.frombuffer(word, np.uint8) for word in (b"True", b"False", b"None"))


@numba.njit(cache=True, nogil=True)
def _is(text: Bytes, start: int, end: int, word: Bytes) -> bool:
    if end - start != len(word):
        return False
    for place in range(len(word)):
        if text[start + place] != word[place]:
            return False
    return True


@numba.njit(cache=True, nogil=True)
def _end_of_string(text: Bytes, place: int, end: int) -> int:
    """Where the string that begins at ``place`` ends (past its quote); -1 if not plain."""
    quote = text[place]
    place += 1
    while place < end and text[place] != quote:
        if text[place] == 92 or text[place] < 32:  # a backslash, a control character
            return -1
        place += 1
    return place + 1 if place < end else -1


@numba.njit(cache=True, nogil=True)
def _end_of_digits(text: Bytes, place: Any, end: int) -> Any:
    while place < end and 48 <= text[place] <= 57:
        place += 1
    return place


@numba.njit(cache=True, nogil=True)
def _end_of_number(text: Bytes, start: int, end: int) -> Any:
    """Where the number that begins at ``start`` ends; -1 if not plain."""
    digits = start + 1 if text[start] == 45 else start
    place = _end_of_digits(text, digits, end)
    if place == digits or place - digits > LONGEST_NUMBER:
        return -1
    if text[digits] == 48 and place - digits > 1:  # Python refuses 007
        return -1
    if place < end and text[place] == 46:
        fraction = place + 1
        place = _end_of_digits(text, fraction, end)
        if place == fraction:
            return -1
    return place


@numba.njit(cache=True, nogil=True)
def _end_of_scalar(text: Bytes, place: int, end: int) -> Any:
    letter = text[place]
    if letter == 45 or 48 <= letter <= 57:
        return _end_of_number(text, place, end)
    for word in WORDS:
        if place + len(word) <= end and _is(text, place, place + len(word), word):
            return place + len(word)
    return -1


@numba.njit(cache=True, nogil=True)
def scan_line(text: Bytes, start: int, end: int, spans: npt.NDArray[np.int64]) -> bool:
    """Find the item and its category in a line.

    Args:
        text: The bytes of many lines.
        start: Where the line begins.
        end: Where it ends, without its newline.
        spans: [4] Filled with begin and end of the item and of the category, quotes left out.

    Returns:
        Whether the line is plain and has both: a string that is not empty under ``asin``, and
        one at the end of the first list in the list under ``categories``.
    """
    is_list = np.zeros(DEEPEST + 1, np.bool_)
    depth = 0
    expect = VALUE
    key_start, key_end = 0, 0  # of the outermost dict
    first_path = False  # whether the list now open is the first in categories
    paths = -1  # lists closed so far in categories, -1 outside
    last_kind, last_start, last_end = OTHER, 0, 0
    spans[:] = 0
    place = start
    while place < end:
        letter = text[place]
        if letter == 32:
            place += 1
            continue
        if expect == COLON:
            if letter != 58:
                return False
            expect = VALUE
            place += 1
            continue
        if expect == COMMA_OR_END and letter == 44:
            expect = VALUE if is_list[depth] else KEY
            place += 1
            continue
        closes = (letter == 93 and is_list[depth]) or (letter == 125 and not is_list[depth])
        if closes and depth and expect in (COMMA_OR_END, VALUE_OR_END, KEY_OR_END):
            if first_path and depth == 3:
                if last_kind != STRING or last_end <= last_start or expect == VALUE_OR_END:
                    return False
                spans[2], spans[3] = last_start, last_end
                first_path = False
            last_kind = OTHER
            depth -= 1
            place += 1
            if depth == 1 and paths >= 0:
                paths = -1
            expect = COMMA_OR_END if depth else NOTHING
            continue
        if expect == KEY or expect == KEY_OR_END:
            if letter != 39 and letter != 34:
                return False
            after = _end_of_string(text, place, end)
            if after < 0:
                return False
            if depth == 1:
                key_start, key_end = place + 1, after - 1
                if _is(text, key_start, key_end, CATEGORIES):
                    spans[2], spans[3] = 0, 0
            place = after
            expect = COLON
            continue
        if expect != VALUE and expect != VALUE_OR_END:
            return False
        in_categories = depth == 1 and _is(text, key_start, key_end, CATEGORIES)
        if letter == 91 or letter == 123:
            if depth == DEEPEST or (depth == 0 and letter == 91):
                return False
            if in_categories:
                if letter == 123:
                    return False
                paths = 0
            elif depth == 2 and paths >= 0:
                first_path = paths == 0
                if first_path and letter == 123:
                    return False
                paths += 1
            depth += 1
            is_list[depth] = letter == 91
            expect = VALUE_OR_END if letter == 91 else KEY_OR_END
            place += 1
            continue
        if depth == 0 or in_categories or (depth == 2 and paths >= 0):
            return False
        if letter == 39 or letter == 34:
            after = _end_of_string(text, place, end)
            if after < 0:
                return False
            last_kind, last_start, last_end = STRING, place + 1, after - 1
            if depth == 1 and _is(text, key_start, key_end, ASIN):
                spans[0], spans[1] = last_start, last_end
        else:
            after = _end_of_scalar(text, place, end)
            if after < 0 or (depth == 1 and _is(text, key_start, key_end, ASIN)):
                return False
            last_kind = OTHER
        place = after
        expect = COMMA_OR_END
    return expect == NOTHING and spans[1] > spans[0] and spans[3] > spans[2]


@numba.njit(cache=True, nogil=True)
def scan_lines(
    text: Bytes, ends: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Scan every line; ``ends`` is where each one ends, its newline not counted.

    Returns:
        [lines] whether the line was plain, and [lines, 4] the spans found.
    """
    plain = np.zeros(len(ends), np.bool_)
    spans = np.zeros((len(ends), 4), np.int64)
    start = 0
    for line in range(len(ends)):
        plain[line] = scan_line(text, start, ends[line], spans[line])
        start = ends[line] + 1
    return plain, spans


@numba.njit(cache=True, nogil=True)
def _copy_spans(text: Bytes, spans: npt.NDArray[np.int64], offsets: npt.NDArray[np.int32]) -> Any:
    copied = np.empty(offsets[-1], np.uint8)
    for row in range(len(spans)):
        copied[offsets[row] : offsets[row + 1]] = text[spans[row, 0] : spans[row, 1]]
    return copied


def cut_spans(text: Bytes, spans: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int32], Bytes]:
    """Copy spans of a text one after the other: offsets and bytes, as arrow's strings are."""
    lengths = spans[:, 1] - spans[:, 0]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return offsets, _copy_spans(text, spans, offsets)
