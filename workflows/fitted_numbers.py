"""Numbers brought to the range that a model likes, by the fitted operators of a workflow.

A request has one number where a log has a column: the operators that the workflow put a column
through are applied to it alone, as they were fitted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import nvtabular as nvt
import pandas as pd
from nvtabular import ColumnSelector

from ..foundation.exceptions import MerlinSimError
from ..foundation.hashing import CROSS_SALT, mix_arrays
from ..schemas.users_layout import POPULARITY_ADDS, POPULARITY_OF
from .feature import (
    COUNT,
    FILLING,
    POPULARITY,
    RECENT_POPULARITY,
    TARGET,
    AnyFeature,
    Cross,
    Encoding,
    Number,
    NumberOperator,
)

MEDIAN = "FillMedian"
LEARNED = ("medians", "means", "mins")
"""What such operators have learned, by column."""
LEARNING = {
    MEDIAN: ("medians",), "Normalize": ("means", "stds"), "NormalizeMinMax": ("mins", "maxs"),
}  # fmt: skip
"""NVTabular's operators that learn something of a log: numbers, by column."""


@dataclass(frozen=True)
class FittedNumbers:
    """The operators of each number as they were fitted."""

    operators: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """By number; where buckets make a key of it, the last one is QuantileBuckets."""
    prior: float = 0.0
    """At what share what trains was taken, where shares are encoded."""
    counted_until: float | None = None
    """The seconds of the newest row that encodings count: such rows show their own label."""

    def refuse_others(self, where: str) -> None:
        """Refuse operators that learned something else of their column than finite numbers."""
        for name, operators in self.operators.items():
            for operator in operators:
                for attribute in LEARNING.get(type(operator).__name__, ()):
                    learned = getattr(operator, attribute)
                    found = learned.get(name) if isinstance(learned, dict) else learned
                    if type(found) not in (int, float) or not math.isfinite(found):
                        raise MerlinSimError(
                            f"{where}: {attribute} of {name!r}: expected a finite number, found "
                            f"{found!r:.60}."
                        )

    def refuse_of_other_columns(self, where: str) -> None:
        """Refuse numbers that operators make of other columns: a request has the number alone."""
        for name, operators in self.operators.items():
            column = pd.DataFrame({name: [1.0]})
            for operator in operators:
                try:
                    column = operator.transform(ColumnSelector([name]), column)
                except (KeyError, ValueError) as error:
                    raise MerlinSimError(
                        f"{where}: {name!r}: expected operators of this column alone. Received: "
                        f"{type(operator).__name__}, which makes it of other columns, and those a "
                        f"request does not have ({error})."
                    ) from error

    def encode(
        self,
        encoding: Encoding,
        smoothing: float,
        shown: Any,
        taken: Any,
        rows: int = 0,
        recent: tuple[Any, float] | None = None,
    ) -> dict[str, Any]:
        """Make numbers of how often keys were seen and taken; ``rows`` are those of all keys.

        ``recent`` are the recent rows of every key, and of all keys together; None for none.

        >>> encoding = Encoding("brand", ("count", "target"))
        >>> seen = np.array([0, 6]), np.array([0, 3])
        >>> found = FittedNumbers(prior=0.5).encode(encoding, 2.0, *seen)
        >>> {name: [f"{value:.2f}" for value in values] for name, values in found.items()}
        {'brand_count': ['0.00', '1.95'], 'brand_target': ['0.50', '0.50']}
        """
        seen = np.asarray(shown + smoothing, np.float64)
        share = np.full(len(seen), self.prior)
        np.divide(taken + smoothing * self.prior, seen, out=share, where=np.asarray(shown) > 0)
        of_key, of_all = (np.zeros(len(seen)), 0.0) if recent is None else recent
        made = {
            COUNT: np.log1p(shown),
            POPULARITY: popularity(shown, rows),
            RECENT_POPULARITY: popularity(of_key, of_all),
            TARGET: share,
        }
        return {name: made[kind].astype(np.float32) for name, kind in encoding.totals.items()}

    def values(self, number: Number, values: Any) -> npt.NDArray[np.float64]:
        """Bring raw numbers to their range; NaN is a missing one.

        >>> number = Number("price", "item", (NumberOperator("Clip", {"max_value": 5.0}),))
        >>> FittedNumbers().values(number, [3, 7]).tolist()
        [3.0, 5.0]
        """
        column = pd.DataFrame({number.name: np.array(values, np.float64)})
        for operator in self._operators_of(number):
            with np.errstate(all="ignore"):  # `unfit` finds those that are not finite
                column = operator.transform(ColumnSelector([number.name]), column)
        transformed: npt.NDArray[np.float64] = column[number.name].to_numpy(np.float64)
        return transformed

    def unfit(self, number: Number, values: Any) -> npt.NDArray[np.bool_]:
        """Tell of which raw numbers the operators make no finite number of 32 bits.

        Where nothing is learned yet, the operators before the first that learns are asked.

        >>> number = Number("price", "item", (NumberOperator("LogOp", {}),))
        >>> FittedNumbers().unfit(number, [0.5, -1, -5]).tolist()
        [False, True, True]
        """
        given, made = np.asarray(values, np.float64), self.values(number, values)
        with np.errstate(over="ignore"):
            is_unfit: npt.NDArray[np.bool_] = ~np.isfinite(made.astype(np.float32))
        stated = number.operators
        if number.name not in self.operators:
            stated = _before_learning(stated)
        if not any(operator.name in FILLING for operator in stated):
            is_unfit &= ~(np.isnan(given) & np.isnan(made))  # missing it was, and is
        return is_unfit

    def bucket_keys(self, number: Number, values: Any) -> npt.NDArray[np.object_]:
        """The key of each raw number's bucket."""
        buckets = self.operators[number.name][-1]
        column = pd.DataFrame({number.name: self.values(number, values)})
        made = buckets.transform(ColumnSelector([number.name]), column)
        return np.asarray(made[number.name], np.object_)

    def without_values(self) -> list[str]:
        """Name the numbers of which nothing was learned, as all were missing."""
        return [
            name
            for name, operators in self.operators.items()
            for operator in operators
            for attribute in LEARNED
            if np.isnan(getattr(operator, attribute, {}).get(name, 0.0))
        ]

    def fewer_buckets(self, features: Iterable[AnyFeature]) -> dict[str, tuple[int, int]]:
        """Name the numbers with fewer buckets than asked for: how many there are, of how many."""
        found = {}
        for feature in features:
            if isinstance(feature, Number) and isinstance(feature.buckets, int):
                count = len(self.operators[feature.name][-1].boundaries[feature.name]) + 1
                if count < feature.buckets:
                    found[feature.name] = count, feature.buckets
        return found

    def _operators_of(self, number: Number) -> Sequence[Any]:
        """What makes a number of a raw one."""
        if number.name not in self.operators:
            stated = _before_learning(number.operators)
            return [getattr(nvt.ops, operator.name)(**operator.arguments) for operator in stated]
        known = self.operators[number.name]
        return known[:-1] if number.buckets is not None else known


def popularity(shown: Any, rows: float) -> npt.NDArray[np.float64]:
    """Return log(1 + how many of 100,000 rows show a key) of how many of ``rows`` rows do."""
    of_rows = POPULARITY_OF / (rows + POPULARITY_ADDS)
    return np.asarray(np.log1p(of_rows * np.asarray(shown, np.float64)))


NOTHING_LEARNED = FittedNumbers()


def expected_of(number: Number) -> str:
    """What is expected of a raw number besides being one."""
    names = ", ".join(operator.name for operator in number.operators)
    return f"a number of which {names} makes a finite one of 32 bits"


def _before_learning(operators: Sequence[NumberOperator]) -> tuple[NumberOperator, ...]:
    """The operators that are the same in every log; a median leaves given numbers as they are."""
    stated = [operator for operator in operators if operator.name != MEDIAN]
    return tuple(itertools.takewhile(lambda operator: operator.name not in LEARNING, stated))


def cross_ids(cross: Cross, ids: Sequence[Any]) -> Any:
    """Hash ids, [rows] of each feature, to 1..buckets; 0 where one of them is 0.

    >>> cross = Cross("where", ("country", "brand"), 1000)
    >>> found = cross_ids(cross, [np.array([1, 1, 2, 0]), np.array([1, 2, 1, 1])])
    >>> len(set(found.tolist())), int(found[3])
    (4, 0)
    """
    hashed = np.zeros(len(ids[0]), np.uint64) + np.uint64(CROSS_SALT)
    known = ids[0] > 0
    for column in ids:
        hashed = mix_arrays(hashed ^ column.astype(np.uint64))
        known &= column > 0
    found = (hashed % np.uint64(cross.buckets)).astype(np.int64) + 1
    return np.where(known, found, 0)
