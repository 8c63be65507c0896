"""The rules by which a log becomes samples, and which interactions train, validate and test."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ..foundation.exceptions import MerlinSimError
from ..foundation.hashing import hash_keys, mix_arrays
from ..schemas.layout_names import TEST, TRAIN, VALIDATION
from ..schemas.users_layout import NEGATIVES, POPULARITY

PART = "part of the split"
"""The column of lists that says of each interaction the index of its mapping."""
SPLIT_SALT = 0x5B117
Array = npt.NDArray[Any]


def mappings_of(validates: bool) -> tuple[str, ...]:
    """The mappings of a split, in the order of its parts."""
    return (TRAIN, VALIDATION, TEST) if validates else (TRAIN, TEST)


@dataclass(frozen=True)
class SplitRules:
    """The columns and files of a split; nothing for each user's last interaction."""

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

    @property
    def part_columns(self) -> tuple[str, ...]:
        """The column that says of each row whose it is, where its file says so."""
        return () if self.test_files is None else (PART,)


SPLIT_RULES = tuple(entry.name for entry in fields(SplitRules))


@dataclass(frozen=True)
class Split(SplitRules):
    """A split by time, by users or by files.

    >>> split = Split(test_from="30", validation_from="20")
    >>> split.parts(pa.array(["u"] * 4), pa.array([10, 20, 29, 30])).tolist()
    [0, 1, 1, 2]
    """

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
        return mappings_of(validates != (None,) * 3)

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
        """Say of each row whose it is; rows have users' keys, times, and this split's columns."""
        for name in self.part_columns:
            return np.asarray(rows[name]).astype(np.int64)
        return self.parts(*(rows[name].combine_chunks() for name in (user, timestamp)))

    def parts(self, users: pa.Array, times: pa.Array) -> npt.NDArray[np.int64]:
        """Say of each interaction whose it is."""
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


NONE = "none"
"""No negative samples are drawn: the log has them."""
DRAWS = (*NEGATIVES, NONE)
UNKNOWN_ORDER = "unknown"
LOG_ORDER = "log"
HASH_ORDER = "hash"
ITEM_ORDER = "item"
ORDERS = (UNKNOWN_ORDER, LOG_ORDER, HASH_ORDER, ITEM_ORDER)
NEWEST = "newest"
TRAIN_ROWS, ALL_ROWS = "train", "all"
AS_OF_SAMPLE = "as_of_sample"
LATEST = "latest"
FEATURE_VALUES = (AS_OF_SAMPLE, LATEST)


def fitted_on_in_words(fit_on: str) -> str:
    """Say in a summary which rows a workflow was fitted on."""
    of_rows = {TRAIN_ROWS: "the rows that train", ALL_ROWS: "all rows"}[fit_on]
    return f"fitted on: {of_rows} (`--fit_on`)"


@dataclass(frozen=True)
class SampleRules(SplitRules):
    """Which users are kept, what a sample holds, and the seed of the draws."""

    max_sequence_length: int = 100
    """Interactions of a history that a sample keeps, the newest."""
    shortest_sequence_for_user: int = 20
    """Users with fewer interactions are dropped."""
    shortest_sequence_for_training: int = 1
    """Interactions that a sample has before it, at least; where each user's last one tests, that
    one needs none."""
    seed: int = 12345
    """Decides the negatives and the order of rows."""
    pad: bool = False
    """Write histories left-padded with 0 to max_sequence_length, as published."""
    negatives: str = POPULARITY
    """Draw negatives by popularity, or each item as often as any other (uniform), or none: then
    negative histories alone are drawn, by popularity."""
    negatives_per_positive: int = 1
    """Negative samples that are drawn for each positive one."""
    negatives_not_in_history: bool = False
    """Draw no item as a negative sample that its user's history has, before or after it."""
    equal_times: str = UNKNOWN_ORDER
    """The order of a user's interactions of one time. ``unknown``: a sample's history holds only
    what came before the sample's own time, and a hash orders what has one time. ``log``: they
    stand as in the log, and those before a sample are its history. ``hash``: the same, in the
    order of a hash. ``item``: the same, in the order of the item's key, as published."""
    fit_on: str = TRAIN_ROWS
    """The rows that ids, counts and numbers are fitted on: those that train, or all, as published.
    What stands in other rows alone has no id."""
    validation: str | None = None
    """``newest``: where the split names no part that validates, the newest of what would train
    validates. None: nothing does."""

    feature_values: str = AS_OF_SAMPLE
    """Which values of users' and items' features a sample has: those known at its own time, or the
    latest of the log, which show training what came after."""

    def __post_init__(self) -> None:
        least = {
            "max_sequence_length": 1,
            "shortest_sequence_for_user": 1,
            "shortest_sequence_for_training": 0,
            "negatives_per_positive": 1,
        }
        problems = [
            f"`{name}` should be at least {value}. Received: `{name}` = {getattr(self, name)}."
            for name, value in least.items()
            if getattr(self, name) < value
        ]
        if not 0 <= self.seed < 2**63:
            problems.append(f"`seed` should lie in 0..2**63 - 1. Received: `seed` = {self.seed}.")
        chosen: dict[str, tuple[str | None, ...]] = {
            "negatives": DRAWS,
            "equal_times": ORDERS,
            "fit_on": (TRAIN_ROWS, ALL_ROWS),
            "validation": (None, NEWEST),
            "feature_values": FEATURE_VALUES,
        }
        for name, choices in chosen.items():
            value = getattr(self, name)
            if value not in choices:
                expected = " or ".join(map(str, choices))
                problems.append(f"`{name}` should be {expected}. Received: `{name}` = {value!r}.")
        if self.negatives == NONE and self.negatives_per_positive != 1:
            problems.append(
                "`negatives_per_positive` needs `negatives` that are drawn. "
                f"Received: `negatives_per_positive` = {self.negatives_per_positive} with "
                f"`negatives` = {NONE!r}."
            )
        problems += self.split.problems() if self.split else []
        if problems:
            raise MerlinSimError("\n".join(problems))

    @property
    def split(self) -> Split | None:
        """What tests, if it is not each user's last interaction."""
        given = {name: getattr(self, name) for name in SPLIT_RULES}
        if all(value is None for value in given.values()):
            return None
        if self.validation and self.test_users and self.validation_users is None:
            given["validation_users"] = min(self.test_users, (1 - self.test_users) / 2)
        return Split(**given, seed=self.seed)

    @property
    def validates_last(self) -> bool:
        """Whether the interaction before each user's last one validates."""
        return self.split is None and self.validation is not None

    @property
    def mappings(self) -> tuple[str, ...]:
        """The mappings that a dataset gets."""
        return self.split.mappings if self.split else mappings_of(self.validates_last)

    @property
    def negatives_drawn(self) -> int:
        """How many negative samples are drawn for each positive one; 0 for none."""
        return 0 if self.negatives == NONE else self.negatives_per_positive

    @property
    def drawn_by(self) -> str:
        """How items are drawn, for samples and for negative histories."""
        return POPULARITY if self.negatives == NONE else self.negatives

    def to_dict(self) -> dict[str, Any]:
        """The rules as JSON holds them."""
        return asdict(self)


@dataclass(frozen=True)
class LastInteraction:
    """The last interaction of each user tests, and the one before it validates."""

    validation: bool = True
    """Whether one validates."""


@dataclass(frozen=True)
class ByTime:
    """Interactions of a time and later test; those from an earlier time on validate."""

    test_from: str | int | float
    """A number or a date, as the times of the log are."""
    validation_from: str | int | float | None = None
    """None for the newest tenth of what would train, as ``rows_that_train`` finds it."""
    validation: bool = True
    """Whether any validate."""

    def __post_init__(self) -> None:
        if self.validation_from is not None and self.validation is not True:
            raise MerlinSimError(
                "`validation_from` needs `validation` = True. Received: `validation` = "
                f"{self.validation!r}."
            )


@dataclass(frozen=True)
class ByUsers:
    """A share of the users tests, another one validates; a user's key and the seed decide."""

    test: float
    """The share that tests."""
    validation: float | bool = True
    """The share that validates; True for as many as test, but no more than train. False: none."""


def rules_of_split(split: LastInteraction | ByTime | ByUsers) -> dict[str, Any]:
    """Say a split as the rules of samples do.

    >>> rules_of_split(ByTime(30))
    {'validation': 'newest', 'test_from': '30', 'validation_from': None}
    """
    if not isinstance(split, LastInteraction | ByTime | ByUsers):
        raise MerlinSimError(
            "`split` should be LastInteraction, ByTime or ByUsers (`merlin_sim.ops`). "
            f"Received: `split` = {split!r}."
        )
    validation = NEWEST if split.validation is True else None
    if isinstance(split, LastInteraction):
        return {"validation": validation}
    if isinstance(split, ByUsers):
        share = None if isinstance(split.validation, bool) else split.validation
        return {"validation": validation, "test_users": split.test, "validation_users": share}
    first, second = (
        None if t is None else str(t) for t in (split.test_from, split.validation_from)
    )
    return {"validation": validation, "test_from": first, "validation_from": second}


def newest_tenth(times: npt.NDArray[Any]) -> Any:
    """The time from which on about the newest tenth is; None where all have one time.

    >>> newest_tenth(np.arange(20)), newest_tenth(np.array([1, 2, 2])), newest_tenth(np.ones(2))
    (18, 2, None)
    """
    if not len(times) or times.min() == times.max():
        return None
    first = np.partition(times, int(0.9 * len(times)))[int(0.9 * len(times))]
    if first == times.min():
        first = times[times > first].min()
    return first.item()


def last_parts(is_sample: Array, offsets: Array, held_out: int) -> Array:
    """Number the last samples of each user as the last parts; all else is part 0.

    So many samples of each user as are held out do not train.

    >>> last_parts(np.array([1, 1, 1, 0, 1], bool), np.array([0, 4, 5]), 2).tolist()
    [0, 1, 2, 0, 2]
    """
    indices = np.flatnonzero(is_sample)
    ends = np.searchsorted(indices, offsets[1:])
    of_user = np.searchsorted(offsets, indices, side="right") - 1
    behind = ends[of_user] - np.arange(len(indices)) - 1
    parts = np.zeros(len(is_sample), np.int64)
    parts[indices] = np.maximum(held_out - behind, 0)
    return parts
