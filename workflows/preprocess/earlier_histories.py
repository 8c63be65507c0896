"""The newest rows of each user: written for the next day, and read where a log continues them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...foundation.digest import sha256
from ...foundation.exceptions import MerlinSimError
from ...foundation.files import whole_file
from ...schemas.item_table import KEY
from ...schemas.parquet import reading, type_in_words
from ...schemas.users_layout import JOINS, SAMPLE
from ..behaviour_columns import ROLE, TAKEN_ROLES, BehaviourColumns
from ..feature import USER
from ..frames import Keys, keys_of, order_by, small_numbers, without_dictionaries
from ..interactions import order_within_times
from ..ops.key_index import ABSENT, keys_of_file
from ..rules import SampleRules
from ..schedulers import read_arrow, written_by_task
from ..times import NANOSECONDS, TimeRange
from ..vocabularies import WHOLE, check_values
from .user_buckets import write_dealt

HISTORY = "history"
"""Name of their directory in a dataset."""
TAKEN_SO_FAR = "rows of histories so far"
SAMPLES_SO_FAR = "samples so far"
FITTED = "fitted on"
OF_HISTORIES = (FITTED, TAKEN_SO_FAR, SAMPLES_SO_FAR)
"""Columns that kept rows have for the histories alone."""
ZSTD_LEVEL = 1
MOST_ROWS = 1 << 53
"""Rows that a user may have, of which a whole history holds all: floats count so far."""


Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def kept_for_next(columns: BehaviourColumns, rules: SampleRules) -> int:
    """How many rows of a history the next day needs: those it sees, and those it counts."""
    if columns.features.lifetime_counts:
        return MOST_ROWS
    return max(rules.max_sequence_length, rules.shortest_sequence_for_training)


def columns_of_rows(columns: BehaviourColumns) -> tuple[str, ...]:
    """Name what is kept of a row, as a reader gives it."""
    numbers = (*columns.features.numbers(USER), *columns.of_interactions)
    names = (*columns.users, columns.item, columns.timestamp, *numbers)
    return tuple(dict.fromkeys(names))


def stored_of_items(columns: BehaviourColumns) -> tuple[str, ...]:
    """Name what a log may say of its items, whether it is asked for or known already."""
    return replace(columns, item_values=True).items_in_log


def roles_of_rows(rows: pa.Table, columns: BehaviourColumns) -> Codes:
    """What part each row plays."""
    for name in columns.roles:
        return np.asarray(columns.roles_of(np.asarray(rows[name]).astype(np.int64)))
    return np.full(rows.num_rows, TAKEN_ROLES, np.int64)


def is_newest(codes: Codes, times: list[Keys], marks: Mask, longest: int) -> Mask:
    """Whether each row is marked, and among the ``longest`` newest marked rows of its code.

    Of the times that order rows the first counts most; of equal ones the later row is the newer.

    >>> codes, times = np.array([0, 0, 0, 1]), [keys_of(pa.array([5, 3, 5, 1]))]
    >>> is_newest(codes, times, np.array([True, True, True, True]), 2).tolist()
    [True, False, True, True]
    """
    counts = np.bincount(codes[marks], minlength=int(codes.max(initial=-1)) + 1)
    has_more = marks & (counts > longest)[codes]
    own = np.flatnonzero(has_more)  # of all others every row is; there is no need to sort them
    order = order_by(codes, times, own)
    ends = np.cumsum(np.where(counts > longest, counts, 0))[codes[order]]
    chosen = marks & ~has_more
    chosen[order[ends - np.arange(len(order)) <= longest]] = True
    return chosen


def is_before_newest(codes: Codes, times: pa.Array, marks: Mask) -> Mask:
    """Whether each row is marked, and of an earlier time than the newest marked one of its code.

    >>> codes, times = np.array([0, 0, 0, 1]), pa.array([5, 3, 5, 1])
    >>> is_before_newest(codes, times, np.array([True, True, True, True])).tolist()
    [False, True, False, False]
    """
    time_codes = small_numbers(times)
    newest = np.full(int(codes.max(initial=-1)) + 1, -1, np.int64)
    rows = pa.table({"code": codes[marks], "moment": time_codes[marks]})
    found = rows.group_by("code", use_threads=False).aggregate([("moment", "max")])
    newest[np.asarray(found["code"])] = np.asarray(found["moment_max"])
    before: Mask = marks & (time_codes < newest[codes])
    return before


@dataclass(frozen=True)
class HistoryWriter:
    """Writes what the next day begins with, of files of some users' rows.

    It knows which items have ids: rows without one do not crowd out those that samples will see.
    """

    columns: BehaviourColumns
    rules: SampleRules
    items: Path
    """The vocabulary of the items."""
    directory: Path
    marks: Path | None
    """Files that say of each row of some users whether it is fitted on; None where all are."""

    def __call__(self, task: tuple[Path, bool]) -> int:
        """Write a file of the newest rows of each user; returns how many rows were read.

        ``task`` is a file of rows, and whether any of them may have been fitted on. Rows are
        written in the order of time, so that what reads them need not know what orders those of one
        time. What they say of their items is kept of rows that were not fitted on: it is not known.
        """
        path, is_fitted = task
        rows = read_arrow(path)
        fitted = np.asarray(rows[FITTED]) > 0
        if is_fitted and self.marks is not None:
            fitted = fitted | np.load(written_by_task(self.marks / f"{path.name}.npy"))
        elif is_fitted:
            fitted = np.ones_like(fitted)
        columns, roles = self.columns, roles_of_rows(rows, self.columns)
        has_id = self._has_id(rows[columns.item].combine_chunks())
        codes = np.asarray(rows[columns.user].combine_chunks().dictionary_encode().indices)
        codes = codes.astype(np.int64)
        samples = np.bincount(codes[has_id & ((roles & SAMPLE) > 0)], minlength=codes.max() + 1)
        indices = self._newest(rows, codes, (roles & JOINS) > 0, has_id)
        of_items = [name for name in stored_of_items(columns) if name in rows.column_names]
        kept = without_dictionaries(
            rows.select([*columns_of_rows(columns), *of_items]).take(pa.array(indices))
        )
        for name in of_items:
            index = kept.schema.get_field_index(name)
            nothing = pa.scalar(None, kept.schema.field(name).type)
            value = pc.if_else(pa.array(fitted[indices]), nothing, kept[name])
            kept = kept.set_column(index, name, value)
        counted = {
            ROLE: (roles[indices] & JOINS).astype(np.int8),
            FITTED: fitted[indices].astype(np.int8),
            TAKEN_SO_FAR: np.asarray(rows[TAKEN_SO_FAR])[indices],
            SAMPLES_SO_FAR: (np.asarray(rows[SAMPLES_SO_FAR]) + samples[codes])[indices],
        }
        for name, values in counted.items():
            kept = kept.append_column(name, pa.array(values))
        names = [*columns.users, columns.item, *of_items, *counted]
        output = self.directory / f"{path.parent.name}.{path.stem}.parquet"
        with whole_file(output) as whole:
            pq.write_table(
                kept, whole, compression="zstd", compression_level=ZSTD_LEVEL,
                use_dictionary=names, write_statistics=False,
            )  # fmt: skip
        return int(rows.num_rows)

    def _has_id(self, items: pa.Array) -> Mask:
        known, encoded = keys_of_file(self.items, KEY), items.dictionary_encode()
        assert known is not None
        keys = encoded.dictionary.cast(known.index.keys.type)
        found: Mask = (known.index.positions(keys) != ABSENT)[np.asarray(encoded.indices)]
        return found

    def _newest(self, rows: pa.Table, codes: Codes, joins: Mask, has_id: Mask) -> Codes:
        """The indices of the rows that the next day needs, ordered."""
        columns, longest = self.columns, kept_for_next(self.columns, self.rules)
        timestamps = rows[columns.timestamp].combine_chunks()
        order = order_within_times(rows, columns, self.rules)
        times, kept = [keys_of(timestamps), *order], np.zeros(len(codes), bool)
        lags = max((max(number.lags) for number in columns.features.lagging), default=0)
        looked_at = [(joins, longest)]
        newest = max(lags, int(bool(columns.stored_of_users)))
        if newest:  # lags and users' features look at all rows, whatever part these play
            looked_at.append((np.ones(len(codes), bool), newest))
        if not has_id.all():
            looked_at += [(marks & has_id, most) for marks, most in looked_at]
        for marks, most in looked_at:
            kept |= is_newest(codes, times, marks, most)
            if columns.time_numbers:  # a sample of the newest time of all sees none of that time
                before = is_before_newest(codes, timestamps, marks)
                kept |= is_newest(codes, times, before, most)
        indices: Codes = np.flatnonzero(kept)
        if order:
            indices = order_by(codes, times, indices)
        return indices


COUNTED = {ROLE: JOINS, FITTED: 1, TAKEN_SO_FAR: MOST_ROWS, SAMPLES_SO_FAR: MOST_ROWS}
"""Columns of whole numbers that the files have besides those of the log, and the greatest."""


@dataclass(frozen=True)
class EarlierHistories:
    """Histories of a dataset's users that it keeps, as its workflow.json says."""

    directory: Path
    """The dataset."""
    longest: int
    """How many rows of each history are kept, the newest; ``MOST_ROWS`` for all."""
    times: str
    """What its times are; see :meth:`~merlin_sim.workflows.table_log.TableLog.time_kind`."""
    files: Mapping[str, str]
    """Their names and their SHA-256."""

    @property
    def paths(self) -> list[Path]:
        """The files."""
        return [self.directory / HISTORY / name for name in self.files]

    def __post_init__(self) -> None:
        if not self.files or not all(name and Path(name).name == name for name in self.files):
            raise MerlinSimError(
                f"{self.directory}/workflow.json: history.files: expected names of files, one at "
                f"least, found {', '.join(map(repr, self.files)) or 'none'}."
            )

    def size(self) -> int:
        """Bytes of all files; refuse one that is missing."""
        for path in self.paths:
            if not path.is_file():
                raise MerlinSimError(f"{path}: missing; {self.directory}/workflow.json names it.")
        return sum(path.stat().st_size for path in self.paths)

    def check(self, longest: int, times: str) -> None:
        """Refuse rules that need longer histories than these, and times of another kind."""
        if longest > self.longest:
            expected = (
                f"{longest} (the greater of `max_sequence_length` and "
                "`shortest_sequence_for_training`)"
            )
            if longest == MOST_ROWS:
                expected = "all, which `lifetime_counts` count"
            raise MerlinSimError(
                f"{self.directory}: keeps the newest {self.longest} interactions of each history, "
                f"expected {expected}."
            )
        if times != self.times and not {times, self.times} <= set(NANOSECONDS):
            raise MerlinSimError(
                f"{self.directory}: its times are of the kind {self.times!r}, those of the log "
                f"{times!r}: expected one kind, or dates."
            )

    def read(
        self,
        path: Path,
        columns: Sequence[str],
        filters: Any = None,
        may_lack: Sequence[str] = (),
    ) -> pa.Table:
        """Read columns of one of the files, which has to be the one that was written.

        Numbers, and what ``may_lack`` a value, are null in some rows.
        """
        with reading(path):
            if sha256(path) != self.files[path.name]:
                raise MerlinSimError(
                    f"{path}: not the file that {self.directory}/workflow.json was written with "
                    "(its SHA-256 differs)."
                )
            table = pq.read_table(path, columns=list(columns), filters=filters)
        for name in columns:
            if name not in table.column_names:
                raise MerlinSimError(f"{path}: expected a column {name!r}, found none.")
            where, values = f"{path}, column {name!r}", table[name]
            if name in COUNTED:
                check_values(where, values, WHOLE, most=COUNTED[name])
            elif not (pa.types.is_floating(values.type) or name in may_lack):
                check_values(where, values)
        return table

    def deal(
        self, columns: BehaviourColumns, example: pa.Table, times: str, buckets: int, output: Path
    ) -> Iterator[tuple[int, TimeRange | None]]:
        """Deal the rows out by user, as those of the log are, of which ``example`` has the types.

        Yields how many there are of each file, and from when to when.
        """
        of_items = [name for name in stored_of_items(columns) if name in example.column_names]
        names = [*columns_of_rows(columns), *of_items]
        for number, path in enumerate(self.paths):
            table = self.read(path, [*names, *COUNTED], may_lack=of_items)
            for name in names:
                expected, found = table.schema.field(name).type, example.schema.field(name).type
                if expected != found:
                    raise MerlinSimError(
                        f"column {name!r} of the log: expected {type_in_words(expected)} as in "
                        f"{path}, found {type_in_words(found)}."
                    )
            not_fitted = table.filter(pc.equal(table[FITTED], 0))
            for name in of_items:
                if name in columns.item_features and not pa.types.is_floating(table[name].type):
                    check_values(f"{path}, column {name!r}", not_fitted[name])
            table = self._in_unit(path, table, columns.timestamp, times)
            write_dealt(table, columns.user, buckets, output / f"{number:06d}.arrow")
            yield table.num_rows, TimeRange.of(table[columns.timestamp], path)

    def _in_unit(self, path: Path, table: pa.Table, name: str, times: str) -> pa.Table:
        """Count dates as the log does; refuse those that it could not distinguish."""
        if times == self.times:
            return table
        old, new = NANOSECONDS[self.times], NANOSECONDS[times]
        values = np.asarray(table[name])
        if (values % max(1, new // old)).any():
            raise MerlinSimError(
                f"column {name!r} of the log: expected dates as fine as those of {path} "
                f"({self.times}), found {times}."
            )
        values = values * (old // new) if old >= new else values // (new // old)
        index = table.schema.get_field_index(name)
        return table.set_column(
            index, name, pc.cast(pa.array(values), table.schema.field(name).type)
        )
