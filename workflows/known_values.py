"""Which values were known, and what was counted, at each row's time.

A feature that changes must not show a sample what came later: a row has the last value of its user,
or of its item, that stands in a row of its own time or before it. A missing value never replaces a
known one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..schemas.dataset_files import SECONDS, TAKEN, TIME, VALUE
from ..schemas.item_table import ID
from ..schemas.recency import NEVER
from .feature import FeatureSet, Time
from .frames import arrow_lists
from .parquet_files import write_table
from .raw_values import is_words

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
SIGN = np.int64(2**63 - 1)


def cycles_of(features: FeatureSet) -> dict[str, tuple[str, ...]]:
    """By column of a time that became points of circles: the first point's two columns."""
    times = [feature for feature in features if isinstance(feature, Time)]
    return {name: time.stored[:2] for time in times for name in time.stored}


def known_rows(name: str, table: pa.Table, cycle: Sequence[str] = ()) -> Mask:
    """Return which rows have a value: neither null, nor ``no_<column>``, nor an empty list.

    Both columns of a point of a circle (``cycle``) are 0 where there is no time.

    >>> known_rows("brand", pa.table({"brand": ["x", "no_brand"]})).tolist()
    [True, False]
    """
    if cycle:
        parts = [np.asarray(table[part]) for part in cycle]
        return np.asarray((parts[0] != 0) | (parts[1] != 0))
    values = table[name].combine_chunks()
    known = values.is_valid()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if is_words(values.type):
        is_key = pc.and_(pc.not_equal(values, f"no_{name}"), pc.not_equal(values, ""))
        known = pc.and_(known, is_key.fill_null(False))
    return np.asarray(known)


def ordered_times(times: pa.Array) -> npt.NDArray[np.int64]:
    """Give times as whole numbers of 64 bits in the same order; whole numbers stay as they are.

    >>> found = ordered_times(pa.array([-1.5, -0.25, 0.0, 3.5]))
    >>> bool((np.diff(found) > 0).all()), ordered_times(pa.array([7, -2])).tolist()
    (True, [7, -2])
    """
    if pa.types.is_floating(times.type):
        bits = (np.asarray(times).astype(np.float64) + 0.0).view(np.int64)
        return np.asarray(np.where(bits < 0, bits ^ SIGN, bits))
    if pa.types.is_temporal(times.type):
        times = pc.cast(pc.cast(times, pa.timestamp("ns"), safe=False), pa.int64())
    return np.asarray(times).astype(np.int64)


def rows_as_of(
    codes: Array, order: Array, time_numbers: Array, known: Mask
) -> npt.NDArray[np.int64]:
    """Name, for each row, the row whose value was the last one known at its time.

    Of rows of one time all have the last known one of them. Where nothing was known yet it is the
    row itself. ``order`` has the rows in the order of codes, times and the log.

    >>> codes, times = np.array([0, 0, 0, 1]), np.array([1, 3, 2, 5])
    >>> order, known = np.lexsort((times, codes)), np.array([True, False, False, False])
    >>> rows_as_of(codes, order, times, known).tolist()
    [0, 0, 0, 3]
    """
    count = len(order)
    if not count:
        return np.empty(0, np.int64)
    indices = np.arange(count)
    newest = np.maximum.accumulate(np.where(known[order], indices, -1))
    new_code = np.diff(codes[order], prepend=codes[order[0]] - 1) != 0
    new_time = new_code | (np.diff(time_numbers[order], prepend=time_numbers[order[0]]) != 0)
    ends = np.append(np.flatnonzero(new_time)[1:], count) - 1
    newest = newest[ends[np.cumsum(new_time) - 1]]
    begins = np.flatnonzero(new_code)[np.cumsum(new_code) - 1]
    found = np.empty(count, np.int64)
    found[order] = np.where(newest >= begins, order[np.maximum(newest, 0)], order)
    return found


def codes_of(values: pa.Array) -> npt.NDArray[np.int64]:
    """Number an array's distinct values; null is one of them.

    Numbers are equal that 32 bits do not tell apart: files may hold a value in either width.

    >>> codes_of(pa.array([0.1, float(np.float32(0.1)), None])).tolist()
    [0, 0, 1]
    """
    if pa.types.is_floating(values.type):
        values = pc.cast(values, pa.float32(), safe=False)
    if pa.types.is_dictionary(values.type):  # its dictionary may have a value twice
        values = values.dictionary_decode()
    encoded = values.dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices).astype(np.int64)


def fill_as_of(
    table: pa.Table,
    names: Sequence[str],
    codes: Array,
    times: pa.Array,
    cycles: Mapping[str, Sequence[str]],
) -> pa.Table:
    """Give each row of a user the values known at its time; rows are in the log's order."""
    order, time_numbers = None, ordered_times(times)
    for name in names:
        known = known_rows(name, table, cycles.get(name, ()))
        values = table[name].combine_chunks()
        numbered = codes_of(values)
        if known.all() and not changes_by_code(numbered, codes).any():
            continue
        if order is None:
            order = np.lexsort((time_numbers, codes))
        rows = rows_as_of(codes, order, time_numbers, known)
        table = table.set_column(
            table.schema.get_field_index(name), name, values.take(pa.array(rows))
        )
    return table


def changes_by_code(values: Array, codes: Array) -> Mask:
    """Return which codes, each of which has a row, have different values.

    >>> changes_by_code(np.array([5, 5, 6, 7]), np.array([0, 0, 1, 1])).tolist()
    [False, True]
    """
    count = int(codes.max(initial=-1)) + 1
    first = np.zeros(count, np.int64)
    first[codes[::-1]] = values[::-1]
    found = np.zeros(count, bool)
    found[codes[values != first[codes]]] = True
    return found


@dataclass(frozen=True)
class ItemValues:
    """The changes of each feature that changes; travels between processes as a path."""

    directory: Path
    """A file for each stored column."""

    def path(self, name: str) -> Path:
        """The file of a column."""
        return self.directory / f"{name}.parquet"

    def write(self, name: str, ids: Array, times: Array, values: Array) -> None:
        """Keep a column's changes, in the order of ids and times: [changes] or [changes, width]."""
        stored = (
            pa.array(values)
            if values.ndim == 1
            else arrow_lists(values.reshape(-1), np.arange(len(values) + 1) * values.shape[1])
        )
        write_table(
            pa.table({ID: ids, TIME: times.astype(np.int64), VALUE: stored}), self.path(name)
        )

    def changes(self, name: str) -> bool:
        """Return whether a column has changes."""
        return self.path(name).is_file()

    def at(self, name: str, ids: Array, times: Array, last: Array) -> Array:
        """Look up what was known of items at times; by item, ``last`` is its last known value.

        >>> import tempfile
        >>> values = ItemValues(Path(tempfile.mkdtemp()))
        >>> values.write("brand", np.array([1, 1]), np.array([5, 9]), np.array([7, 8]))
        >>> last = np.array([0, 8, 4])
        >>> items, times = np.array([1, 1, 1, 2]), np.array([4, 8, 9, 1])
        >>> values.at("brand", items, times, last).tolist()
        [7, 7, 8, 4]
        """
        found = last[ids]
        values, indices = self._changes(name, ids, times)
        found[indices >= 0] = values[indices[indices >= 0]]
        return found

    def is_outdated(
        self, name: str, ids: Array, times: Array, latest: Array
    ) -> npt.NDArray[np.bool_]:
        """Return which items have another value at a time than the ``latest``, by item."""
        values, indices = self._changes(name, ids, times)
        differs = values[np.maximum(indices, 0)] != latest[ids]
        differs = differs if differs.ndim == 1 else differs.any(axis=1)
        outdated: npt.NDArray[np.bool_] = (indices >= 0) & differs
        return outdated

    def _changes(self, name: str, ids: Array, times: Array) -> tuple[Array, Array]:
        table = pq.read_table(self.path(name))
        values = table[VALUE].combine_chunks()
        if not pa.types.is_primitive(values.type):
            values = np.asarray(values.flatten()).reshape(len(table), -1)
        changed, time_numbers = np.asarray(table[ID]), np.asarray(table[TIME])
        known = np.unique(time_numbers)
        span = len(known) + 1
        keys = changed * span + np.searchsorted(known, time_numbers)
        asked = ids * span + np.searchsorted(known, times, "right")
        firsts, stops = np.searchsorted(changed, ids), np.searchsorted(changed, ids, "right")
        indices = np.maximum(np.searchsorted(keys, asked) - 1, firsts)  # the first one before it
        has_any = stops > firsts
        return np.asarray(values), np.where(has_any, indices, -1)


def write_events(path: Path, ids: Array, seconds: Array, taken: Array) -> None:
    """Write the interactions of one domain that have an id: times, and 1 where one was taken."""
    order = np.lexsort((seconds, ids))
    order = order[ids[order] > 0]
    columns = {ID: ids, SECONDS: seconds, TAKEN: taken.astype(np.int8)}
    write_table(pa.table({name: column[order] for name, column in columns.items()}), path)


@numba.njit(cache=True, nogil=True)
def last_days(ids: Array, days: Array, size: int) -> Array:
    """The last day of each id, and the last one before that: [size, 2]."""
    found = np.full((size, 2), NEVER)
    for row in range(len(ids)):
        last, day = found[ids[row]], days[row]
        if day > last[0]:
            last[0], last[1] = day, last[0]
        elif last[1] < day < last[0]:
            last[1] = day
    return found
