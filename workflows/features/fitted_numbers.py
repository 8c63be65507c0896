"""Numbers brought to the range that a model likes, by NVTabular's operators, once they are fitted.

NVTabular's Workflow.save would write a pickle. What an operator has learned is a few numbers: they
stand in workflow.json, and the operators are made again with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import nvtabular as nvt
import pandas as pd
import pyarrow as pa
from merlin.io import Dataset
from nvtabular import ColumnSelector

from ...foundation.exceptions import MerlinSimError, UnfitNumberError
from ...foundation.process_wide import quiet_merlin
from .feature import COUNT, FILLING, TARGET, AnyFeature, Encoding, Number, Operator

MEDIAN = "FillMedian"
LEARNED: dict[str, tuple[str, ...]] = {
    MEDIAN: ("medians",),
    "Normalize": ("means", "stds"),
    "NormalizeMinMax": ("mins", "maxs"),
}
"""NVTabular's operator -> the dictionaries of what it learns, column by column."""
BOUNDARIES = "boundaries"
Learned = Mapping[str, Any]
"""By place of its operator, what each one of a number has learned; and its buckets' boundaries."""


@dataclass(frozen=True)
class FittedNumbers:
    """What the operators have learned, number by number."""

    learned: Mapping[str, Learned] = field(default_factory=dict)
    prior: float = 0.0
    """At what share what trains was taken, where shares are encoded."""
    counted_until: float | None = None
    """The seconds of the newest row that encodings count, which tell such rows their own label."""

    def encode(
        self, encoding: Encoding, smoothing: float, shown: Any, taken: Any
    ) -> dict[str, Any]:
        """Make numbers of how often keys were seen and taken.

        >>> encoding = Encoding("brand", ("count", "target"))
        >>> seen = np.array([0, 6]), np.array([0, 3])
        >>> found = FittedNumbers(prior=0.5).encode(encoding, 2.0, *seen)
        >>> {name: [f"{value:.2f}" for value in values] for name, values in found.items()}
        {'brand_count': ['0.00', '1.95'], 'brand_target': ['0.50', '0.50']}
        """
        seen = np.asarray(shown + smoothing, np.float64)
        share = np.full(len(seen), self.prior)
        np.divide(taken + smoothing * self.prior, seen, out=share, where=np.asarray(shown) > 0)
        made = {COUNT: np.log1p(shown), TARGET: share}
        named = zip(encoding.names, encoding.kinds, strict=True)
        return {name: made[kind].astype(np.float32) for name, kind in named}

    def values(self, number: Number, values: Any) -> npt.NDArray[np.float64]:
        """Bring raw numbers to their range; NaN is a missing one.

        >>> number = Number("price", "item", (Operator("Clip", {"max_value": 5.0}),))
        >>> FittedNumbers({"price": {}}).values(number, [3, 7]).tolist()
        [3.0, 5.0]
        """
        column = pd.DataFrame({number.name: np.array(values, np.float64)})
        learned = self.learned.get(number.name, {})
        for place, operator in enumerate(number.operators):
            made = _operator(operator, number.name, learned.get(str(place)))
            with np.errstate(all="ignore"):  # whoever needs finite numbers asks `unfit`
                column = made.transform(ColumnSelector([number.name]), column)
        transformed: npt.NDArray[np.float64] = column[number.name].to_numpy(np.float64)
        return transformed

    def unfit(self, number: Number, values: Any) -> npt.NDArray[np.bool_]:
        """Tell of which raw numbers the operators make no finite number of 32 bits.

        Where nothing is learned yet, the operators before the first that learns are asked.

        >>> number = Number("price", "item", (Operator("LogOp", {}),))
        >>> FittedNumbers().unfit(number, [0.5, -1, -5]).tolist()
        [False, True, True]
        """
        if number.name not in self.learned:
            number = replace(number, operators=_before_learning(number.operators))
        return _is_unfit(number, np.asarray(values, np.float64), self.values(number, values))

    def bucket_keys(self, number: Number, values: Any) -> npt.NDArray[np.object_]:
        """The key of each raw number's bucket.

        >>> fitted = FittedNumbers({"price": {"boundaries": [2.0, 5.0]}})
        >>> fitted.bucket_keys(Number("price", "item", (), 3), [1, 2, 7, np.nan]).tolist()
        ['bucket 0', 'bucket 1', 'bucket 2', 'no_price']
        """
        numbers = self.values(number, values)
        boundaries = np.asarray(self.learned[number.name][BOUNDARIES], np.float64)
        places = np.searchsorted(boundaries, numbers, side="right")
        digits = len(str(len(boundaries)))
        keys = np.array(
            [f"bucket {place:0{digits}d}" for place in range(len(boundaries) + 1)], object
        )[places]
        keys[np.isnan(numbers)] = f"no_{number.name}"
        return np.asarray(keys, np.object_)

    def fewer_buckets(self, features: Iterable[AnyFeature]) -> dict[str, tuple[int, int]]:
        """Name the numbers with fewer buckets than asked for: how many there are, of how many."""
        found = {}
        for feature in features:
            if isinstance(feature, Number) and isinstance(feature.buckets, int):
                count = len(self.learned[feature.name][BOUNDARIES]) + 1
                if count < feature.buckets:
                    found[feature.name] = count, feature.buckets
        return found

    def bucket_array(self, number: Number, values: pa.Array) -> pa.Array:
        """The same for raw numbers of arrow, null where one is missing."""
        raw = np.asarray(values.fill_null(np.nan))
        return pa.array(self.bucket_keys(number, raw), pa.string())


NOTHING_LEARNED = FittedNumbers()


def fit_numbers(
    numbers: Sequence[Number], values: Mapping[str, npt.NDArray[np.float64]]
) -> dict[str, Learned]:
    """Fit the operators of some numbers.

    Args:
        numbers: The numbers.
        values: What each is fitted on, NaN where it is missing.

    Raises:
        MerlinSimError: Where an operator makes something else than a number of a value, or
            all values are missing.
    """
    return {number.name: _fit(number, values[number.name]) for number in numbers}


def _fit(number: Number, values: npt.NDArray[np.float64]) -> Learned:
    if np.isnan(values).all():
        raise MerlinSimError(f"{number.name!r}: expected numbers, found none: all are missing.")
    learned: dict[str, Any] = {}
    column = pd.DataFrame({number.name: np.asarray(values, np.float64)})
    for place, stated in enumerate(number.operators):
        operator = _operator(stated, number.name, None)
        if stated.name in LEARNED:
            with quiet_merlin():
                selector = [number.name] >> operator
                nvt.Workflow(selector).fit(Dataset(column, cpu=True))
            found = {
                name: float(getattr(operator, name)[number.name]) for name in LEARNED[stated.name]
            }
            learned[str(place)] = found
            operator = _operator(stated, number.name, found)
        with np.errstate(all="ignore"):
            column = operator.transform(ColumnSelector([number.name]), column.copy())
    made = column[number.name].to_numpy(np.float64)
    check_made(number, values, made)
    if isinstance(number.buckets, tuple):
        learned[BOUNDARIES] = list(number.buckets)
    elif number.buckets is not None:
        learned[BOUNDARIES] = _boundaries(number, made[~np.isnan(made)])
    return learned


def _boundaries(number: Number, values: npt.NDArray[np.float64]) -> list[float]:
    """Where buckets begin that hold as many values each; equal values are in one bucket."""
    assert isinstance(number.buckets, int)
    shares = np.arange(1, number.buckets) / number.buckets
    lasts = np.unique(np.quantile(values, shares, method="inverted_cdf"))
    distinct = np.unique(values)
    firsts = np.searchsorted(distinct, lasts, side="right")  # a bucket begins behind the last value
    found = distinct[firsts[firsts < len(distinct)]]
    if not len(found):
        raise MerlinSimError(
            f"{number.name!r}: expected {number.buckets} buckets, found one: so many values "
            f"are {distinct[-1]:g} that all smaller ones share its bucket."
        )
    return [float(border) for border in found]


def expected_of(number: Number) -> str:
    """What is expected of a raw number beside being one."""
    names = ", ".join(operator.name for operator in number.operators)
    return f"a number of which {names} makes a finite one of 32 bits"


def check_made(number: Number, values: Any, made: npt.NDArray[np.float64]) -> None:
    """Refuse what operators made of raw numbers, where a model could not read it.

    Raises:
        UnfitNumberError: With the first of them.
    """
    is_wrong = _is_unfit(number, values, made)
    if is_wrong.any():
        place = int(np.argmax(is_wrong))
        raise UnfitNumberError(
            f"{number.name!r}: expected {expected_of(number)}. Of {values[place]:g} came "
            f"{made[place]:g}."
        )


def _is_unfit(
    number: Number, values: npt.NDArray[np.float64], made: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    with np.errstate(over="ignore"):
        is_unfit: npt.NDArray[np.bool_] = ~np.isfinite(made.astype(np.float32))
    if not any(operator.name in FILLING for operator in number.operators):
        is_unfit &= ~(np.isnan(values) & np.isnan(made))  # missing it was, and is
    return is_unfit


def _before_learning(operators: Sequence[Operator]) -> tuple[Operator, ...]:
    """The operators that are the same in every log; a median leaves given numbers as they are."""
    found = []
    for operator in operators:
        if operator.name == MEDIAN:
            continue
        if operator.name in LEARNED:
            break
        found.append(operator)
    return tuple(found)


def _operator(stated: Operator, column: str, learned: Mapping[str, float] | None) -> Any:
    operator = getattr(nvt.ops, stated.name)(**stated.arguments)
    for name, value in (learned or {}).items():
        setattr(operator, name, {column: value})
    return operator


def learned_from_plain(plain: Any, numbers: Iterable[Number], where: str) -> dict[str, Learned]:
    """Check what operators have learned, as a workflow.json holds it.

    Raises:
        MerlinSimError: Where it is not what these numbers' operators learn.
    """
    found: dict[str, Learned] = {}
    expected = {number.name: number for number in numbers}
    if not isinstance(plain, Mapping) or set(plain) != set(expected):
        raise MerlinSimError(f"{where}: expected what {', '.join(expected)} learned.")
    for name, number in expected.items():
        wanted = {
            str(place): LEARNED[operator.name]
            for place, operator in enumerate(number.operators)
            if operator.name in LEARNED
        }
        entry = plain[name]
        keys = {*wanted, *([BOUNDARIES] if number.buckets is not None else [])}
        fits = isinstance(entry, Mapping) and set(entry) == keys
        fits = fits and all(
            isinstance(entry[place], Mapping)
            and set(entry[place]) == set(names)
            and all(map(_is_number, entry[place].values()))
            for place, names in wanted.items()
        )
        if fits and BOUNDARIES in keys:
            borders = entry[BOUNDARIES]
            fits = isinstance(borders, list) and all(map(_is_number, borders))
        if not fits:
            raise MerlinSimError(
                f"{where}.{name}: expected what its operators learned: numbers under "
                f"{', '.join(sorted(keys)) or 'nothing'}."
            )
        found[name] = entry
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value)
