"""Operators that NVTabular has not: buckets, keys of a text, logarithms, values as of a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dask
import numpy as np
import numpy.typing as npt
import nvtabular as nvt
import pyarrow as pa
from merlin.dag.ops.stat_operator import StatOperator
from merlin.schema import Tags
from nvtabular.ops import Operator

from ...foundation.exceptions import MerlinSimError, UnfitNumberError
from ..feature import require_count
from ..frames import column_to_arrow, frame_from_arrow, frame_to_arrow, new_frame
from ..known_values import fill_as_of
from ..raw_values import keys_of_lists
from ..times import read_times
from .registry import register

Array = npt.NDArray[Any]


@register
class QuantileBuckets(StatOperator):
    """Put numbers into buckets with about as many rows each; the buckets become keys.

    NVTabular's Bucketize takes given borders; this one learns them from the
    quantiles in ``fit``. Equal numbers are in one bucket. The output is text, ``bucket 0`` and so
    on, or ``no_<column>`` where there is no number: ``Categorify`` makes ids of it.

    Example usage::

        ages = ["age"] >> ops.QuantileBuckets(10) >> ops.Categorify()

    Args:
        buckets: How many buckets, or the numbers at which they begin.
    """

    def __init__(self, buckets: int | Sequence[float]) -> None:
        super().__init__()
        if isinstance(buckets, int) and buckets < 2:
            raise MerlinSimError(f"`buckets` should be at least 2. Received: {buckets}.")
        self.buckets: int | list[float] = (
            buckets if isinstance(buckets, int) else [float(border) for border in buckets]
        )
        self.boundaries: dict[str, list[float]] = {}

    def fit(self, col_selector: Any, ddf: Any) -> Any:
        """Count the different numbers of each column."""
        if not isinstance(self.buckets, int):
            return dask.delayed(dict)()
        counted = [dask.delayed(_counted)(part, col_selector.names) for part in ddf.to_delayed()]
        return dask.delayed(_added)(counted)

    def fit_finalize(self, dask_stats: Mapping[str, tuple[Array, Array]]) -> None:
        """Learn the boundaries."""
        for name, (values, counts) in dask_stats.items():
            assert isinstance(self.buckets, int)
            self.boundaries[name] = _boundaries(name, values, counts, self.buckets)

    def clear(self) -> None:
        """Forget the boundaries."""
        self.boundaries = {}

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Name the bucket of each number; the few numbers of a row come to the host for it."""
        keys = {}
        for name in col_selector.names:
            numbers = _numbers(df, name)
            if np.isinf(numbers).any():
                raise UnfitNumberError(f"{name!r}: expected finite numbers, found an infinite one.")
            borders = self.boundaries[name] if isinstance(self.buckets, int) else self.buckets
            keys[name] = pa.array(bucket_keys(borders, name, numbers))
        return frame_from_arrow(pa.table(keys))

    @property
    def output_dtype(self) -> Any:
        """Text."""
        return np.dtype("O")

    @property
    def output_tags(self) -> list[Tags]:
        """Keys."""
        return [Tags.CATEGORICAL]

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return {"buckets": self.buckets}

    def get_learned(self, directory: Path) -> dict[str, Any]:
        """Return the boundaries."""
        return {"boundaries": self.boundaries}

    def set_learned(self, learned: Mapping[str, Any], directory: Path) -> None:
        """Take the boundaries."""
        self.boundaries = {
            name: [float(border) for border in found]
            for name, found in learned["boundaries"].items()
        }


def bucket_keys(boundaries: Sequence[float], name: str, numbers: Array) -> Array:
    """The key of each number's bucket.

    >>> bucket_keys([2.0, 5.0], "price", np.array([1, 2, 7, np.nan])).tolist()
    ['bucket 0', 'bucket 1', 'bucket 2', 'no_price']
    """
    digits = len(str(len(boundaries)))
    named = [f"bucket {number:0{digits}d}" for number in range(len(boundaries) + 1)]
    borders = np.asarray(boundaries, np.float32)
    buckets = np.searchsorted(borders, np.asarray(numbers, np.float32), side="right")
    keys = np.array(named, object)[buckets]
    keys[np.isnan(numbers)] = f"no_{name}"
    return np.asarray(keys, np.object_)


def _numbers(frame: Any, name: str) -> npt.NDArray[np.float64]:
    numbers = np.asarray(column_to_arrow(frame, name).cast(pa.float64()).fill_null(np.nan))
    return numbers.astype(np.float32).astype(np.float64)  # a value may come in either width


def _counted(frame: Any, names: Sequence[str]) -> dict[str, tuple[Array, Array]]:
    found = {}
    for name in names:
        numbers = _numbers(frame, name)
        found[name] = np.unique(numbers[~np.isnan(numbers)], return_counts=True)
    return found


def _added(counted: Sequence[Mapping[str, tuple[Array, Array]]]) -> dict[str, tuple[Array, Array]]:
    found = {}
    for name in counted[0]:
        values, counts = (np.concatenate([one[name][n] for one in counted]) for n in (0, 1))
        distinct, codes = np.unique(values, return_inverse=True)
        found[name] = distinct, np.bincount(codes, counts, minlength=len(distinct))
    return found


def _boundaries(name: str, values: Array, counts: Array, buckets: int) -> list[float]:
    """Where buckets begin that hold as many rows each; equal numbers are in one bucket."""
    if not len(values):
        raise MerlinSimError(f"{name!r}: expected numbers, found none: all are missing.")
    ends = np.cumsum(counts)
    targets = np.arange(1, buckets) / buckets * ends[-1]
    lasts = np.unique(np.searchsorted(ends, np.ceil(targets - 1e-9)))
    found = values[lasts[lasts < len(values) - 1] + 1]  # a bucket begins behind the last value
    if not len(found):
        raise MerlinSimError(
            f"{name!r}: expected {buckets} buckets, found one: so many values are "
            f"{values[-1]:g} that all smaller ones share its bucket."
        )
    return [float(border) for border in found]


@register
class SplitKeys(nvt.ops.Operator):
    """Make a list of the first keys of a text with a separator, for ``Categorify``.

    NVTabular's ListSlice cuts lists, and none of its operators splits a text into one.

    Args:
        longest: How many keys are kept.
        separator: What stands between them.
    """

    def __init__(self, longest: int, separator: str = "|") -> None:
        super().__init__()
        require_count("`longest`", longest)
        if not isinstance(separator, str) or not separator:
            raise MerlinSimError(
                f"`separator` should be a text of a letter or more. Received: {separator!r}."
            )
        self.longest = longest
        self.separator = separator

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Split one partition, on the host, by the rule for lists that a server has too."""
        lists = {}
        for name in col_selector.names:
            column = column_to_arrow(df, name)
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            keys, rows = keys_of_lists(column, self.longest, self.separator)
            counts = np.bincount(rows, minlength=len(column))
            offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
            lists[name] = pa.ListArray.from_arrays(offsets, keys)
        return frame_from_arrow(pa.table(lists))

    def _compute_shape(self, col_schema: Any, input_schema: Any) -> Any:
        return col_schema.with_shape((None, (0, self.longest)))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return {"longest": self.longest, "separator": self.separator}


@register
class LogNumbers(Operator):
    """log(x + 3) of a number, 0 of one that is missing; one without a logarithm is refused.

    NVTabular's LogOp adds 1, and makes NaN or minus infinity of what has no logarithm then.

    >>> import pandas as pd
    >>> from nvtabular import ColumnSelector
    >>> numbers = pd.DataFrame({"clicks": [-2.0, float("nan"), 0.0]})
    >>> logarithms = LogNumbers().transform(ColumnSelector(["clicks"]), numbers)["clicks"]
    >>> [f"{value:.4f}" for value in logarithms]
    ['0.0000', '0.0000', '1.0986']

    Args:
        added: What is added to x.
    """

    def __init__(self, added: float = 3.0) -> None:
        super().__init__()
        self.added = added

    @property
    def output_dtype(self) -> Any:
        """The type of what comes out."""
        return np.float32

    @property
    def output_tags(self) -> list[Tags]:
        """Numbers."""
        return [Tags.CONTINUOUS]

    def get_config(self) -> dict[str, float]:
        """Give the arguments that make the operator again."""
        return {"added": self.added}

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Transform one partition."""
        columns = {}
        for name in col_selector.names:
            numbers = df[name].values.astype("float32")
            with np.errstate(divide="ignore", invalid="ignore"):
                logarithms = np.log(numbers + np.float32(self.added))
            unfit = ~(np.isfinite(logarithms) | np.isnan(numbers))
            if unfit.any():
                raise UnfitNumberError(
                    f"{name!r}: expected finite numbers above {-self.added:g}, as log(x + "
                    f"{self.added:g}) is taken of them, or none. Received: "
                    f"{float(numbers[unfit][0]):g}."
                )
            columns[name] = np.nan_to_num(logarithms, copy=False)
        return new_frame(columns, like=df)


@register
class FillAsOf(nvt.ops.Operator):
    """Put the last value that was known at an interaction's time instead of its own.

    A feature that changes should not show a sample what came later, and a missing value should not
    hide a known one. NVTabular's FillMissing knows no time. All rows of a user should stand in one
    partition, in the order of the log.

    Example usage::

        filled = ["status", "user", "time"] >> ops.FillAsOf(user="user", order="time")

    Args:
        user: The column of the users, as the log has it.
        order: The column of the times.
        cycles: By column of a time that became a point of a circle, the two columns of such a
            point: both are 0 where there is no time.
    """

    def __init__(
        self, user: str, order: str, cycles: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        super().__init__()
        self.user = user
        self.order = order
        self.cycles = {name: list(names) for name, names in (cycles or {}).items()}

    def column_mapping(self, col_selector: Any) -> dict[str, list[str]]:
        """The users and the times are only read."""
        read = [self.user, self.order]
        return {n: [n, *read] for n in col_selector.names if n not in read}

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Fill one partition; its users' features are brought to the host for it."""
        names = [name for name in col_selector.names if name not in (self.user, self.order)]
        needed = {name: df[name] for name in (self.user, self.order, *names)}
        table = frame_to_arrow(new_frame(needed, like=df))
        users = table[self.user].combine_chunks()
        codes = np.asarray(users.dictionary_encode().indices).astype(np.int64)
        times = read_times(table[self.order].combine_chunks(), self.order)
        table = fill_as_of(table, names, codes, times, self.cycles)
        return frame_from_arrow(table.select(names))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return {"user": self.user, "order": self.order, "cycles": self.cycles}
