"""How often a key must be seen to have an id of its own, column by column."""

from __future__ import annotations

from ...foundation.exceptions import MerlinSimError
from .criteo_columns import KEY_COLUMNS, KEYS


def parse_thresholds(text: str) -> tuple[int, ...]:
    """Read limits: the default, then ``column:limit`` with the columns of keys counted from 0.

    >>> limits = parse_thresholds("15,3:20")
    >>> limits[0], limits[3], len(limits)
    (15, 20, 26)

    Raises:
        MerlinSimError: Where it is not that.
    """
    default, *others = text.split(",")
    limits = [_whole(default, text)] * KEYS
    for pair in others:
        column, colon, limit = pair.partition(":")
        if not colon or not 0 <= _whole(column, text) < KEYS:
            raise _refused(text)
        limits[int(column)] = _whole(limit, text)
    return tuple(limits)


def _whole(text: str, all_of_it: str) -> int:
    if not text.strip().isdecimal():
        raise _refused(all_of_it)
    return int(text)


def _refused(text: str) -> MerlinSimError:
    return MerlinSimError(
        "`frequency_threshold` should be a limit, and limits of columns behind it: 15,3:20, where "
        f"3 is {KEY_COLUMNS[3]} and columns run from 0 to {KEYS - 1}. "
        f"Received: `frequency_threshold` = {text!r}."
    )
