"""What was seen of late: whole days since something was last seen, and recent popularity.

Days are those since an earlier day than the one that asks. Training knows all days of the past, a
request and a later log only the last two of the log that was fitted. These are enough: nothing of
that log is later than the day that asks, so the last day that is earlier is one of the two.

In a recent popularity a row's weight halves in a week. It is as of the newest row, so that it stays
the same after the log's last one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

SECONDS_OF_DAY = 86_400
MOST_DAYS = 3_650
"""What was seen longer ago, or never, was seen so many days ago."""
NEVER, LAST_DAY = -(2**31), 2**31 - 1
"""In the place of a day; and the last one that is distinguished: later ones count as it."""
LOGARITHMS = np.log1p(np.arange(MOST_DAYS + 1)).astype(np.float32)
"""log(1 + days), by days: the same numbers on every device."""
HALF_LIFE = 7.0 * SECONDS_OF_DAY
"""In so many seconds a row's weight in a recent popularity halves."""


def days_of(seconds: Any) -> npt.NDArray[np.int64]:
    """The days of times: how many days after 1970-01-01 (UTC).

    >>> days_of([-1.0, 86_399.9, 86_400.0]).tolist()
    [-1, 0, 1]
    """
    days = np.floor(np.asarray(seconds, np.float64) / SECONDS_OF_DAY)
    return np.asarray(np.clip(days, NEVER + 1, LAST_DAY), np.int64)


def log_days_since(day: Any, last: Any, before: Any) -> npt.NDArray[np.float32]:
    """Return log(1 + days) of keys on a day, by the last two days on which each was seen.

    >>> on = log_days_since(20, last=np.array([18, 20, 20]), before=np.array([1, 15, NEVER]))
    >>> np.expm1(on).round().astype(int).tolist()
    [2, 5, 3650]
    """
    seen = np.where(last < day, last, before)
    days = np.where(seen < day, np.minimum(day - seen, MOST_DAYS), MOST_DAYS)
    return np.asarray(LOGARITHMS[days])


def recent_rows(ids: Any, seconds: Any, size: int) -> npt.NDArray[np.float64]:
    """Count the rows of each id by their weight as of the newest row: [size]; of id 0 none.

    >>> times = [0.0, HALF_LIFE, 2 * HALF_LIFE, 3 * HALF_LIFE]
    >>> recent_rows([1, 1, 2, 0], times, 4).tolist()
    [0.0, 0.75, 1.0, 0.0]
    """
    known = np.asarray(ids) > 0
    ids, seconds = np.asarray(ids)[known], np.asarray(seconds, np.float64)[known]
    weights = 0.5 ** ((seconds.max(initial=-np.inf) - seconds) / HALF_LIFE)
    return np.asarray(np.bincount(ids, weights, minlength=size), np.float64)
