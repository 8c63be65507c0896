"""Of one bucket of the log: the users with enough interactions, and what they took."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...sampling.item_table import COUNT, KEY
from ...sampling.roles import JOINS, POSITIVE
from ..engine.backend import join_keys, order_of_rows, ranks
from .behaviour_columns import BehaviourColumns
from .user_buckets import read_bucket

EVENTS = "events"
ITEMS = "items"
USERS = "users"
SHOWN = "rows of the item"


@dataclass(frozen=True)
class KeptBucket:
    """What is left of a bucket."""

    bucket: int
    users: int
    rows: int
    dropped_users: int
    repeated: int
    """Rows that stand in the log more than once, the first not counted; all are kept."""
    same_time: int
    """Rows that have the user and the time of an earlier row."""
    taken: int
    """Rows that join the history: all, but for a log with labels or behaviours."""


@dataclass(frozen=True)
class KeepLongUsers:
    """Drops users with too few interactions; counts items; remembers features' last values.

    Where the log has labels or behaviours, the interactions of a user are the rows that join the
    history, those of an item these and what is predicted to be taken.
    """

    columns: BehaviourColumns
    shortest: int
    buckets: Path
    """Where the log stands, dealt out by user."""
    directory: Path
    item_features: tuple[str, ...]
    """Features that stand in the log itself, those without ids too."""

    def __call__(self, bucket: int) -> KeptBucket:
        """Work on a bucket; what is kept goes to ``directory`` in files named by its number."""
        table = read_bucket(self.buckets, bucket)
        users = table[self.columns.user].combine_chunks().dictionary_encode()
        codes = np.asarray(users.indices)
        counts = np.bincount(codes[self._has(JOINS, table)], minlength=len(users.dictionary))
        kept = table.filter(pa.array(counts[codes] >= self.shortest)).combine_chunks()
        if kept.num_rows:
            keys = users.dictionary.filter(pa.array(counts >= self.shortest))
            self._write(USERS, bucket, pa.table({KEY: keys}))
            self._write(ITEMS, bucket, self._items(kept))
            names = (*self.columns.users, self.columns.item, self.columns.timestamp)
            names += (*self.columns.roles, *self.columns.of_users, *self.columns.of_interactions)
            self._write(EVENTS, bucket, kept.select(names))
        repeated, same_time = self._count_repeated(kept)
        return KeptBucket(
            bucket=bucket,
            users=int((counts >= self.shortest).sum()),
            rows=kept.num_rows,
            dropped_users=int((counts < self.shortest).sum()),
            repeated=repeated,
            same_time=same_time,
            taken=int(self._has(JOINS, kept).sum()),
        )

    def _has(self, role: int, table: pa.Table) -> npt.NDArray[np.bool_]:
        """Whether each row plays a part, or one of several."""
        for name in self.columns.roles:
            roles = self.columns.roles_of(np.asarray(table[name]).astype(np.int64))
            return np.asarray((roles & role) > 0)
        return np.ones(table.num_rows, bool)

    def _write(self, kind: str, bucket: int, table: pa.Table) -> None:
        path = self.directory / kind / f"{bucket:06d}.arrow"
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)

    def _items(self, kept: pa.Table) -> pa.Table:
        """Each item of the bucket with its count, and its features' last values and their time."""
        items = kept[self.columns.item].combine_chunks().dictionary_encode()
        codes = np.asarray(items.indices).astype(np.int64)
        counted = JOINS | POSITIVE
        columns: dict[str, Any] = {
            KEY: items.dictionary,
            COUNT: np.bincount(codes[self._has(counted, kept)], minlength=len(items.dictionary)),
        }
        if self.columns.features.encodings:
            columns[SHOWN] = np.bincount(codes, minlength=len(items.dictionary))
        time = kept[self.columns.timestamp].combine_chunks()
        latest = latest_rows(codes, time) if self.item_features else np.empty(0, np.int64)
        for name in self.item_features:
            values = kept[name].combine_chunks()
            last = last_row_of_each(codes, latest, values)
            columns[name] = values.take(last)
            columns[f"{name} at"] = time.take(last)
        return pa.table(columns)

    def _count_repeated(self, kept: pa.Table) -> tuple[int, int]:
        """Count the rows that repeat user, time and item, and those that repeat user and time."""
        names = (self.columns.user, self.columns.timestamp, self.columns.item)
        codes = [
            np.asarray(kept[name].combine_chunks().dictionary_encode().indices) for name in names
        ]
        return kept.num_rows - _count_distinct(codes), kept.num_rows - _count_distinct(codes[:2])


def _count_distinct(codes: list[npt.NDArray[np.int32]]) -> int:
    if not len(codes[0]):
        return 0
    joined = join_keys(codes)
    if joined is not None:
        return len(np.unique(joined))
    return int(np.unique(np.stack(codes), axis=1).shape[1])


def latest_rows(codes: npt.NDArray[np.int64], time: pa.Array) -> npt.NDArray[np.int64]:
    """The rows with the greatest time of their code; several of a code where they share it."""
    moments = ranks(time)
    order = order_of_rows([codes, moments])
    latest = np.full(int(codes.max(initial=-1)) + 1, -1, np.int64)
    latest[codes[order]] = moments[order]  # of each code the last one stays
    return np.flatnonzero(moments == latest[codes])


def last_row_of_each(
    codes: npt.NDArray[np.int64], latest: npt.NDArray[np.int64], values: pa.Array
) -> pa.Array:
    """The row of each code with the greatest (time, value), in the order of codes.

    No value is the least one.

    Args:
        codes: [rows] Whose each is.
        latest: What :func:`latest_rows` gives.
        values: [rows] Only those of rows that share their time are compared.
    """
    own = codes[latest]
    place = np.zeros(len(latest), np.int64)
    several = np.flatnonzero(np.bincount(own)[own] > 1)
    compared = values.take(pa.array(latest[several]))
    given = np.asarray(compared.is_valid())
    place[several[given]] = ranks(compared.drop_null()) + 1
    order = order_of_rows([own, place])
    ends = np.flatnonzero(np.diff(own[order], append=-1))
    return pa.array(latest[order[ends]])
