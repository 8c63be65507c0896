"""The newest rows of each user, which the next day's histories begin with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ...foundation.atomic_write import whole_file
from ...schemas.users_layout import JOINS
from ..behaviour.behaviour_columns import ROLE, BehaviourColumns
from ..engine.backend import order_of_rows, ranks
from ..features.feature import USER

HISTORY = "history"
"""Name of their directory in a dataset."""
TAKEN_SO_FAR = "rows of histories so far"
SAMPLES_SO_FAR = "samples so far"
ZSTD_LEVEL = 1


def columns_of_rows(columns: BehaviourColumns) -> tuple[str, ...]:
    """Name what is kept of a row, as a reader gives it."""
    numbers = (*columns.features.numbers(USER), *columns.of_interactions)
    names = (*columns.users, columns.item, columns.timestamp, *numbers)
    return tuple(dict.fromkeys(names))


def is_newest(
    codes: npt.NDArray[np.int64],
    times: list[pa.Array],
    marks: npt.NDArray[np.bool_],
    longest: int,
) -> npt.NDArray[np.bool_]:
    """Whether each row is marked, and among the newest marked rows of its code.

    >>> codes, times = np.array([0, 0, 0, 1]), [pa.array([5, 3, 5, 1])]
    >>> is_newest(codes, times, np.array([True, True, True, True]), 2).tolist()
    [True, False, True, True]

    Args:
        codes: [rows] Whose each is.
        times: Each [rows] what orders them, the first counting most; of equal ones the later row is
            the newer.
        marks: [rows] Which rows may be.
        longest: How many of a code.
    """
    counts = np.bincount(codes[marks], minlength=int(codes.max(initial=-1)) + 1)
    has_more = marks & (counts > longest)[codes]
    own = np.flatnonzero(has_more)  # of all others every row is; there is no need to sort them
    keys = [ranks(time.take(pa.array(own))) for time in times]
    order = own[order_of_rows([codes[own], *keys])]
    ends = np.cumsum(np.where(counts > longest, counts, 0))[codes[order]]
    chosen = marks & ~has_more
    chosen[order[ends - np.arange(len(order)) <= longest]] = True
    return chosen


def is_before_newest(
    codes: npt.NDArray[np.int64], times: pa.Array, marks: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Whether each row is marked, and of an earlier time than the newest marked one of its code.

    >>> codes, times = np.array([0, 0, 0, 1]), pa.array([5, 3, 5, 1])
    >>> is_before_newest(codes, times, np.array([True, True, True, True])).tolist()
    [False, True, False, False]

    Args:
        codes: [rows] Whose each is.
        times: [rows] When.
        marks: [rows] Which rows may be.
    """
    moments, places = ranks(times), np.flatnonzero(marks)
    order = places[order_of_rows([codes[places], moments[places]])]
    newest = np.full(int(codes.max(initial=-1)) + 1, -1, np.int64)
    newest[codes[order]] = moments[order]  # of each code the last one stays
    found: npt.NDArray[np.bool_] = marks & (moments < newest[codes])
    return found


def write_newest(
    path: Path,
    rows: pa.Table,
    columns: BehaviourColumns,
    codes: npt.NDArray[np.int64],
    roles: npt.NDArray[np.int64],
    so_far: dict[str, npt.NDArray[np.int64]],
    longest: int,
    order: list[pa.Array],
) -> None:
    """Write what the next day begins with, of some users.

    Args:
        path: The parquet file.
        rows: Of these users, in the order of the log.
        columns: The log's columns.
        codes: [rows] Whose each is.
        roles: [rows] What part each plays.
        so_far: By name of a column, [codes] what is counted of each user.
        longest: How many rows of a history are kept.
        order: [rows] each: what orders rows of one user and one time, before their order in the
            log. They are written in this order, so that what reads them need not know it.
    """
    times = [rows[columns.timestamp].combine_chunks(), *order]
    joins, kept = (roles & JOINS) > 0, np.zeros(len(codes), bool)
    lags = max((max(number.lags) for number in columns.features.lagging), default=0)
    looked_at = [(joins, longest)]
    newest = max(lags, int(bool(columns.stored_of_users)))
    if newest:  # lags and users' features look at all rows, whatever part these play
        looked_at.append((np.ones(len(codes), bool), newest))
    for marks, most in looked_at:
        kept |= is_newest(codes, times, marks, most)
        if columns.moments:  # a sample of the newest time of all sees none of that time
            before = is_before_newest(codes, times[0], marks)
            kept |= is_newest(codes, times, before, most)
    places = np.flatnonzero(kept)
    if order:
        keys = [ranks(key.take(pa.array(places))) for key in times]
        places = places[order_of_rows([codes[places], *keys])]
    table = rows.select(columns_of_rows(columns)).take(pa.array(places))
    table = table.append_column(ROLE, pa.array((roles[places] & JOINS).astype(np.int8)))
    for name, counts in so_far.items():
        table = table.append_column(name, pa.array(counts[codes[places]]))
    names = [*columns.users, columns.item, ROLE, *so_far]
    with whole_file(path) as whole:
        pq.write_table(
            table, whole, compression="zstd", compression_level=ZSTD_LEVEL, use_dictionary=names,
            write_statistics=False,
        )  # fmt: skip
