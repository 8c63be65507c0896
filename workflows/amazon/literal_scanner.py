"""A scanner for lines that are plain Python dict literals, as the Amazon metadata file has them.

It knows strings without escapes, numbers, True, False, None, lists and dicts. Whatever else a
line holds, the scanner does not judge it: it says "not plain", and the caller asks
:func:`ast.literal_eval`. What it does accept, literal_eval reads in the same way; the tests
compare the two.

It stands here because literal_eval alone is 35 to 70 times slower, and holds Python's lock: a core
reads 730,000 synthetic lines a second (181 bytes each) with the scanner and 10,000 without, which
is 3 s and 221 s for the 2.28 million items of Amazon Books; of lines of 1.4 KB, with related items
and descriptions, 135 MB/s and 4 MB/s.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
DEEPEST = 16
LONGEST_NUMBER = 18

# What may come next.
VALUE, VALUE_OR_END, KEY, KEY_OR_END, COLON, COMMA_OR_END, NOTHING = range(7)
# The scanner's state, one number each: how deep, what may come next, the outermost dict's key now
# open, lists opened so far in categories (-1 outside of it), whether the first of them is open, and
# the last value: whether it was a string, and its span.
DEPTH, EXPECT, KEY_START, KEY_END, PATHS, IN_FIRST, IS_TEXT, TEXT_START, TEXT_END = range(9)
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
def _key_is(text: Bytes, state: Numbers, word: Bytes) -> Any:
    return state[DEPTH] == 1 and _is(text, state[KEY_START], state[KEY_END], word)


@numba.njit(cache=True, nogil=True)
def _take_close(state: Numbers, spans: Numbers) -> bool:
    """Close the list or dict now open; the first list in categories must end in a string."""
    if state[IN_FIRST] and state[DEPTH] == 3:
        if not state[IS_TEXT] or state[EXPECT] == VALUE_OR_END:
            return False
        spans[2], spans[3] = state[TEXT_START], state[TEXT_END]
        state[IN_FIRST] = 0
    state[IS_TEXT] = 0
    state[DEPTH] -= 1
    if state[DEPTH] == 1:
        state[PATHS] = -1
    state[EXPECT] = COMMA_OR_END if state[DEPTH] else NOTHING
    return True


@numba.njit(cache=True, nogil=True)
def _take_open(text: Bytes, opens_list: bool, state: Numbers, is_list: Flags) -> bool:
    """Open a list or dict: the line is a dict, categories a list whose first entry is a list."""
    depth = state[DEPTH]
    if depth == DEEPEST or (depth == 0 and opens_list):
        return False
    if _key_is(text, state, CATEGORIES):
        if not opens_list:
            return False
        state[PATHS] = 0
    elif depth == 2 and state[PATHS] >= 0:
        state[IN_FIRST] = state[PATHS] == 0
        if state[IN_FIRST] and not opens_list:
            return False
        state[PATHS] += 1
    state[DEPTH] += 1
    is_list[state[DEPTH]] = opens_list
    state[EXPECT] = VALUE_OR_END if opens_list else KEY_OR_END
    return True


@numba.njit(cache=True, nogil=True)
def _take_key(text: Bytes, place: int, end: int, state: Numbers, spans: Numbers) -> Any:
    """Read a dict's key; gives the place after it, -1 if not plain."""
    if text[place] != 39 and text[place] != 34:
        return -1
    after = _end_of_string(text, place, end)
    if after >= 0 and state[DEPTH] == 1:
        state[KEY_START], state[KEY_END] = place + 1, after - 1
        if _key_is(text, state, CATEGORIES):  # of a key that stands twice the last one counts
            spans[2], spans[3] = 0, 0
    state[EXPECT] = COLON
    return after


@numba.njit(cache=True, nogil=True)
def _take_scalar(text: Bytes, place: int, end: int, state: Numbers, spans: Numbers) -> Any:
    """Read a string, number or word; gives the place after it, -1 if not plain."""
    if state[DEPTH] == 0 or _key_is(text, state, CATEGORIES):
        return -1
    if state[DEPTH] == 2 and state[PATHS] >= 0:
        return -1
    is_asin = _key_is(text, state, ASIN)
    state[EXPECT] = COMMA_OR_END
    state[IS_TEXT] = text[place] == 39 or text[place] == 34
    if not state[IS_TEXT]:
        return -1 if is_asin else _end_of_scalar(text, place, end)
    after = _end_of_string(text, place, end)
    state[TEXT_START], state[TEXT_END] = place + 1, after - 1
    if is_asin:
        spans[0], spans[1] = place + 1, after - 1
    return after


@numba.njit(cache=True, nogil=True)
def scan_line(text: Bytes, start: int, end: int, spans: Numbers) -> Any:
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
    state = np.zeros(9, np.int64)
    state[EXPECT], state[PATHS] = VALUE, -1
    spans[:] = 0
    place = start
    while place < end:
        letter, expect = text[place], state[EXPECT]
        in_list = is_list[state[DEPTH]]
        if letter == 32:
            place += 1
        elif expect == COLON and letter == 58:
            state[EXPECT] = VALUE
            place += 1
        elif expect == COMMA_OR_END and letter == 44:
            state[EXPECT] = VALUE if in_list else KEY
            place += 1
        elif state[DEPTH] and letter == (93 if in_list else 125):
            if expect != COMMA_OR_END and expect != VALUE_OR_END and expect != KEY_OR_END:
                return False
            if not _take_close(state, spans):
                return False
            place += 1
        elif expect == KEY or expect == KEY_OR_END:
            place = _take_key(text, place, end, state, spans)
        elif expect != VALUE and expect != VALUE_OR_END:
            return False
        elif letter == 91 or letter == 123:
            if not _take_open(text, letter == 91, state, is_list):
                return False
            place += 1
        else:
            place = _take_scalar(text, place, end, state, spans)
        if place < 0:
            return False
    return state[EXPECT] == NOTHING and spans[1] > spans[0] and spans[3] > spans[2]


@numba.njit(cache=True, nogil=True)
def scan_lines(text: Bytes, ends: Numbers) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
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
