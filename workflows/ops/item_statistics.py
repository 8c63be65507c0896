"""Statistics of a log's items: how often each was taken, and the values of its features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...schemas.item_table import COUNT, ID, KEY, SHOWN
from ...schemas.layout_names import CATEGORIES
from ...schemas.users_layout import JOINS, POSITIVE
from ..behaviour_columns import BehaviourColumns
from ..feature import ITEM
from ..fitted_numbers import FittedNumbers
from ..known_values import changes_by_code, codes_of
from ..parquet_files import write_table
from ..raw_values import matrix_of

Array = npt.NDArray[Any]
TIME, LOG_ROW, KNOWN, VALUE = "moment", "place", "known", "value"
ITEMS_FILE, VOCABULARY = "items.parquet", "vocabulary"


@dataclass(frozen=True)
class ItemStatistics:
    """Statistics of items in some partitions; those of several partitions can be merged."""

    users: npt.NDArray[np.uint64]
    """Hashes of the users' keys, of each partition once."""
    ids: Array
    """The items, in the order of their ids; id 0 is left out."""
    counts: Array
    """How often each was taken."""
    shown: Array
    """How many rows each has."""
    last: Mapping[str, pa.Table]
    """By feature: of each item the last known value, with its time and row."""
    varying: Mapping[str, Array]
    """By feature: the items that have several values."""
    rows: int
    taken: int
    newest: float | None
    """The time of the newest row in seconds, where the log has seconds."""
    held_out: int
    """How many rows validate or test."""

    @classmethod
    def of(
        cls,
        users: npt.NDArray[np.uint64],
        items: Array,
        features: Mapping[str, pa.Table],
        roles: Array,
        seconds: Array | None,
        held_out: int = 0,
    ) -> ItemStatistics:
        """Count some rows: items (0 for none), roles, and, where they count, seconds: [rows] each.

        ``features`` has, by feature of items: id, time, row, whether it is known, and the value.
        """
        counted = (roles & (JOINS | POSITIVE)) > 0
        shown = np.bincount(items)
        taken = np.bincount(items[counted], minlength=len(shown))
        ids = np.flatnonzero(shown[1:]) + 1
        return cls(
            users=users,
            ids=ids,
            counts=taken[ids],
            shown=shown[ids],
            last={name: last_of_each(table) for name, table in features.items()},
            varying={name: _varying(table) for name, table in features.items()},
            rows=len(items),
            taken=int(((roles & POSITIVE) > 0).sum()),
            newest=None if seconds is None or not len(seconds) else float(seconds.max()),
            held_out=held_out,
        )


def merged(found: Sequence[ItemStatistics]) -> ItemStatistics:
    """Add up the statistics of several partitions."""
    ids = np.concatenate([one.ids for one in found])
    counts, shown = (
        np.bincount(ids, np.concatenate(of_each)).astype(np.int64)
        for of_each in ([one.counts for one in found], [one.shown for one in found])
    )
    own = np.flatnonzero(shown)
    last, varying = {}, {}
    for name in found[0].last:
        tables = [one.last[name] for one in found]
        together = pa.concat_tables(tables).combine_chunks()
        last[name] = last_of_each(together)
        varying[name] = np.unique(
            np.concatenate([_varying(together), *(one.varying[name] for one in found)])
        )
    times = [one.newest for one in found if one.newest is not None]
    return ItemStatistics(
        users=np.concatenate([one.users for one in found]),
        ids=own,
        counts=counts[own],
        shown=shown[own],
        last=last,
        varying=varying,
        rows=sum(one.rows for one in found),
        taken=sum(one.taken for one in found),
        newest=max(times, default=None),
        held_out=sum(one.held_out for one in found),
    )


def last_of_each(table: pa.Table) -> pa.Table:
    """Keep, of each item, the known row of the greatest time, of these the last of the log.

    Of an item of which nothing is known it is the last row.

    >>> table = pa.table({ID: [7, 7, 7, 8], TIME: [7, 7, 2, 1], LOG_ROW: [2, 5, 9, 0],
    ...     KNOWN: [True, True, True, False], VALUE: ["a", "b", "c", "d"]})
    >>> last_of_each(table)[VALUE].to_pylist()
    ['b', 'd']
    """
    names = (ID, KNOWN, TIME, LOG_ROW)
    rows = _last_rows(*(np.asarray(table[name]).astype(np.int64, copy=False) for name in names))
    return table.take(pa.array(rows)).combine_chunks()


@numba.njit(cache=True, nogil=True)
def _last_rows(ids: Array, known: Array, times: Array, log_rows: Array) -> Array:
    """The last row of each id, by id; sorting the rows would take ten times as long."""
    last = np.full(ids.max() + 1 if len(ids) else 0, -1)
    for row in range(len(ids)):
        other = last[ids[row]]
        if other < 0 or (known[row], times[row], log_rows[row]) >= (
            known[other], times[other], log_rows[other],
        ):  # fmt: skip
            last[ids[row]] = row
    return last[last >= 0]


def value_codes(values: pa.Array) -> npt.NDArray[np.int64]:
    """Number an array's distinct values, lists too."""
    if pa.types.is_list(values.type):
        texts = pa.ListArray.from_arrays(values.offsets, pc.cast(values.values, pa.string()))
        values = pc.binary_join(texts, " ")
    return codes_of(values)


def _varying(table: pa.Table) -> Array:
    known = table.filter(table[KNOWN])
    codes = value_codes(known[VALUE].combine_chunks())
    return np.flatnonzero(changes_by_code(codes, np.asarray(known[ID])))


@dataclass(frozen=True)
class ItemTableFitter:
    """The item table as it was learned: what is known of each item, by id from 1."""

    columns: BehaviourColumns
    table: pa.Table | None = None
    fitted: FittedNumbers = field(default_factory=FittedNumbers)
    """The prior of shares and the time until which was counted, where encodings are asked for."""
    days: Mapping[str, Array] = field(default_factory=dict)
    """By column whose recency is encoded: of each of its keys the last two days of a log, [keys +
    1, 2]; none before its rows were written."""
    recent: Mapping[str, Array] = field(default_factory=dict)
    """By column whose recent popularity is encoded: the recent rows of each of its keys, likewise,
    [keys + 1]; 0 of id 0."""
    grows: bool = False
    """Whether ``fit`` goes on from what is known: items keep what new rows do not say of them."""
    kept: Mapping[str, Array] = field(default_factory=dict)
    """By feature, where it grew, the items that keep what was known of them."""

    def cleared(self) -> ItemTableFitter:
        """Forget what was learned, unless it grows."""
        return self if self.grows else ItemTableFitter(self.columns)

    def fitted_on(self, found: ItemStatistics) -> ItemTableFitter:
        """Take the statistics of all partitions."""
        columns, features = self.columns, self.columns.features
        size = int(found.ids.max(initial=0))
        table = {COUNT: _by_id(found.ids, found.counts, size)}
        for name, last in found.last.items():
            table[name] = self._column(name, last, size)
        fitted = self.fitted
        if features.encodings:
            labelled = columns.labels and found.rows
            prior = found.taken / found.rows if labelled else float(not columns.labels)
            fitted = replace(fitted, prior=prior, counted_until=found.newest)
            table[SHOWN] = _by_id(found.ids, found.shown, size)
        made, kept = pa.table(table), {}
        if self.grows and self.table is not None:
            changing = (name for name in found.last if name not in columns.steady)
            known = {name: _stated_in_log(found.last[name]) for name in changing}
            stated = {name: np.asarray(last[ID]) for name, last in known.items()}
            before = np.arange(self.table.num_rows) + 1
            kept = {name: np.setdiff1d(before, ids) for name, ids in stated.items()}
            made = _grown(self.table, made, stated)
        return replace(self, table=made, fitted=fitted, kept=kept)

    def _column(self, name: str, last: pa.Table, size: int) -> pa.Array:
        """A feature by id, as models read it; items without rows have nothing."""
        features = self.columns.features
        rows = np.full(size + 1, -1, np.int64)
        rows[np.asarray(last[ID])] = np.arange(last.num_rows)
        rows = rows[1:]
        values = last[VALUE].combine_chunks().take(pa.array(rows, mask=rows < 0))
        for vector in features.vectors:
            if vector.name == name:
                flat = pa.array(matrix_of(values, vector.size).reshape(-1))
                return pa.FixedSizeListArray.from_arrays(flat, vector.size)
        if name in features.numbers(ITEM):
            values = pc.cast(values, pa.float32())
        return _without_nulls(values)

    def for_ids(self, size: int) -> dict[str, pa.Array]:
        """The columns of the vocabulary of items beside id and key, for so many ids.

        Counts and shares that ``encodings`` ask for are those of all rows that were fitted on.
        """
        assert self.table is not None
        columns = self.columns
        names = [COUNT, *columns.item_features, *columns.of_items]
        rows = np.arange(size)
        indices = pa.array(rows, mask=rows >= self.table.num_rows)
        table = {name: self.table[name].combine_chunks().take(indices) for name in names}
        found = {name: _without_nulls(values) for name, values in table.items()}
        for encoding in columns.features.encodings:
            if SHOWN not in self.table.column_names:
                stored = (*encoding.totals, *encoding.days)
                found |= {n: self.table[n].combine_chunks().take(indices) for n in stored}
                continue
            counts = [np.asarray(self.table[name]) for name in (SHOWN, COUNT)]
            ids = np.arange(1, self.table.num_rows + 1)
            if encoding.column != columns.item:
                ids = np.asarray(self.table[encoding.column])
            shown, taken = (np.bincount(ids, of_item)[ids] for of_item in counts)
            of_all = int(counts[0][ids > 0].sum())
            smoothing = columns.features.smoothing
            recent = self.recent.get(encoding.column)
            recently = None if recent is None else (recent[ids], float(recent.sum()))
            numbers = self.fitted.encode(encoding, smoothing, shown, taken, of_all, recently)
            if encoding.column in self.days:
                numbers |= dict(zip(encoding.days, self.days[encoding.column][ids].T, strict=True))
            found |= {name: pa.array(column).take(indices) for name, column in numbers.items()}
        return found

    def save(self, directory: Path) -> dict[str, Any]:
        """Write the table into a directory; give what else was learned, as JSON holds it.

        The vocabulary of items of the dataset that is being saved has the table already.
        """
        vocabulary = _vocabulary(directory, self.columns)
        if not vocabulary.is_file():
            write_table(self.table, directory / ITEMS_FILE)
        return {
            "items": VOCABULARY if vocabulary.is_file() else ITEMS_FILE,
            "prior": self.fitted.prior,
            "counted_until": self.fitted.counted_until,
        }

    def load(self, learned: Mapping[str, Any], directory: Path) -> ItemTableFitter:
        """Read what ``save`` wrote."""
        if learned["items"] == VOCABULARY:
            table = pq.read_table(_vocabulary(directory, self.columns)).sort_by(ID)
            table = table.drop_columns([ID, KEY])
        else:
            table = pq.read_table(directory / ITEMS_FILE)
        fitted = FittedNumbers(prior=learned["prior"], counted_until=learned["counted_until"])
        return replace(self, table=table, fitted=fitted)


def _vocabulary(directory: Path, columns: BehaviourColumns) -> Path:
    """The vocabulary of items of a dataset, whose workflow keeps files in a directory."""
    return directory.parent.parent / CATEGORIES / f"{columns.item}.parquet"


def _stated_in_log(last: pa.Table) -> pa.Table:
    """The items that a row of the log describes: an earlier row may be older than the table."""
    return last.filter(pc.and_(last[KNOWN], pc.greater_equal(last[LOG_ROW], 0)))


def _by_id(ids: Array, values: Array, size: int) -> pa.Array:
    found = np.zeros(size + 1, np.int64)
    found[ids] = values
    return pa.array(found[1:])


def _grown(before: pa.Table, found: pa.Table, stated: Mapping[str, Array]) -> pa.Table:
    """Counts grow; the ids ``stated`` of a feature take its new value; new items stand behind."""
    count, columns = before.num_rows, {}
    size = max(count, found.num_rows)
    for name in before.column_names:
        old, new = (table[name].combine_chunks() for table in (before, found))
        if name in (COUNT, SHOWN):
            more = np.zeros(size, np.int64)
            more[: len(new)] += np.asarray(new)
            more[:count] += np.asarray(old)
            columns[name] = pa.array(more)
            continue
        rows = np.arange(size)
        rows[count:] += count
        renewed = stated.get(name, rows[:0]) - 1
        rows[renewed] = renewed + count
        columns[name] = pa.concat_arrays([old, new.cast(old.type)]).take(pa.array(rows))
    return pa.table(columns)


def _without_nulls(values: pa.Array) -> pa.Array:
    if not values.null_count:
        return values
    kind = values.type
    nothing: Any = 0
    if pa.types.is_list(kind):
        nothing = []
    elif pa.types.is_fixed_size_list(kind):
        nothing = [0.0] * kind.list_size
    return values.fill_null(pa.scalar(nothing, kind))
