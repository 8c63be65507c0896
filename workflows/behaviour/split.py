"""Which interactions train, validate and test, where it is not each user's last that tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ...foundation.exceptions import MerlinSimError
from ...foundation.hashing import hash_keys, mix_arrays

TRAIN = "train"
TEST = "test"
VALIDATION = "validation"
PART = "part of the split"
"""The column of lists that says of each interaction whose it is: a place among the mappings."""
SPLIT_SALT = 0x5B117


def last_mappings(validates: bool) -> tuple[str, ...]:
    """The mappings where each user's last interactions are held out, in the order of time."""
    return (TRAIN, VALIDATION, TEST) if validates else (TRAIN, TEST)


@dataclass(frozen=True)
class Split:
    """A split by time or by users.

    >>> split = Split(test_from="30", validation_from="20")
    >>> split.parts(pa.array(["u"] * 4), pa.array([10, 20, 29, 30])).tolist()
    [0, 1, 1, 2]
    """

    test_from: str | None = None
    """Interactions of this time and later test; a number or a date, as the log's times are."""
    validation_from: str | None = None
    """Interactions of this time and later, but before ``test_from``, validate."""
    test_users: float | None = None
    """The share of users who test; a user's key and the seed decide."""
    validation_users: float | None = None
    """The share of users who validate."""
    test_files: bool | None = None
    """Whether all interactions of files that are given for it test."""
    validation_files: bool | None = None
    """Whether those of other files validate."""
    seed: int = 0

    def problems(self) -> list[str]:
        """Gather what is wrong with it."""
        found = []
        ways = ("test_from", "test_users", "test_files")
        given = [name for name in ways if getattr(self, name) is not None]
        if len(given) > 1:
            expected = ", ".join(f"`{name}`" for name in ways)
            found.append(f"One of {expected} should be given. Received: {' and '.join(given)}.")
        for second in ways:
            first = second.replace("test", "validation")
            if getattr(self, first) is not None and getattr(self, second) is None:
                found.append(f"`{first}` needs `{second}`. Received: none.")
        shares = [share for share in (self.test_users, self.validation_users) if share is not None]
        if not all(0 < share < 1 for share in shares) or not sum(shares) < 1:
            found.append(
                "`test_users` and `validation_users` should be shares above 0, together below 1. "
                f"Received: {' and '.join(map(str, shares))}."
            )
        return found

    @property
    def mappings(self) -> tuple[str, ...]:
        """The mappings, in the order of their parts."""
        validates = (self.validation_from, self.validation_users, self.validation_files)
        return (TRAIN, TEST) if validates == (None,) * 3 else (TRAIN, VALIDATION, TEST)

    @property
    def columns(self) -> tuple[str, ...]:
        """The column that says of each row whose it is, where its file says so."""
        return () if self.test_files is None else (PART,)

    def with_times(self, test_from: Any, validation_from: Any) -> Split:
        """The same, with times as a log's reader has them."""
        if validation_from is not None and not validation_from < test_from:
            raise MerlinSimError(
                "`validation_from` should be earlier than `test_from`. Received: "
                f"{self.validation_from} and {self.test_from}."
            )
        first, second = (
            None if time is None else str(time) for time in (test_from, validation_from)
        )
        return replace(self, test_from=first, validation_from=second)

    def parts_of(self, rows: pa.Table, user: str, timestamp: str) -> npt.NDArray[np.int64]:
        """Say of each row whose it is.

        Args:
            rows: With the columns of this split, users' keys and times.
            user: The user's column.
            timestamp: The timestamp's.
        """
        for name in self.columns:
            return np.asarray(rows[name]).astype(np.int64)
        return self.parts(*(rows[name].combine_chunks() for name in (user, timestamp)))

    def parts(self, users: pa.Array, times: pa.Array) -> npt.NDArray[np.int64]:
        """Say of each interaction whose it is.

        Args:
            users: The users' keys.
            times: Numbers, or times.
        """
        if self.test_from is not None:
            given = [time for time in (self.validation_from, self.test_from) if time is not None]
            marks = [np.asarray(pc.greater_equal(times, _time(g, times.type))) for g in given]
        else:
            shares = [self.test_users, self.validation_users]
            borders = np.cumsum([share for share in shares if share is not None])
            marks = [self._unit(users) < border for border in borders]
        parts: npt.NDArray[np.int64] = np.sum(marks, axis=0, dtype=np.int64)
        return parts

    def _unit(self, users: pa.Array) -> npt.NDArray[np.float64]:
        """A number in [0, 1) of each user, the same in every log."""
        distinct = users.dictionary_encode()
        keys = mix_arrays(hash_keys(distinct.dictionary) ^ np.uint64(self.seed ^ SPLIT_SALT))
        unit: npt.NDArray[np.float64] = (keys >> np.uint64(11)).astype(np.float64) / (1 << 53)
        by_row: npt.NDArray[np.float64] = unit[np.asarray(distinct.indices)]
        return by_row


def _time(text: str, kind: pa.DataType) -> pa.Scalar:
    try:
        if pa.types.is_timestamp(kind):
            time = pd.to_datetime(text, utc=True)
            return pa.scalar(time if kind.tz is not None else time.tz_localize(None), kind)
        return pa.scalar(float(text) if pa.types.is_floating(kind) else int(text), kind)
    except ValueError as error:
        raise MerlinSimError(
            f"`test_from` and `validation_from`: expected {kind}, as the times of the log are. "
            f"Received: {text}."
        ) from error
