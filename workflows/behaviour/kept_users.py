"""Of one bucket of the log: the users with enough interactions, and what they took."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...sampling.item_table import COUNT, KEY
from ..engine.backend import join_keys, order_of_rows, ranks
from .behaviour_columns import BehaviourColumns
from .user_buckets import read_bucket

EVENTS = "events"
ITEMS = "items"
USERS = "users"


@dataclass(frozen=True)
class KeptBucket:
    """What is left of a bucket."""

    bucket: int
    users: int
    rows: int
    dropped_users: int
    repeated: int
    """Rows that stand in the log more than once, the first not counted; all are kept."""


@dataclass(frozen=True)
class KeepLongUsers:
    """Drops users with too few interactions; counts items; remembers features' last values."""

    columns: BehaviourColumns
    shortest: int
    buckets: Path
    """Where the log stands, dealt out by user."""
    directory: Path
    item_features: tuple[str, ...]
    """Features that stand in the log itself."""

    def __call__(self, bucket: int) -> KeptBucket:
        """Work on a bucket; what is kept goes to ``directory`` in files named by its number."""
        table = read_bucket(self.buckets, bucket)
        users = table[self.columns.user].combine_chunks().dictionary_encode()
        codes = np.asarray(users.indices)
        counts = np.bincount(codes, minlength=len(users.dictionary))
        kept = table.filter(pa.array(counts[codes] >= self.shortest)).combine_chunks()
        if kept.num_rows:
            keys = users.dictionary.filter(pa.array(counts >= self.shortest))
            self._write(USERS, bucket, pa.table({KEY: keys}))
            self._write(ITEMS, bucket, self._items(kept))
            names = (*self.columns.users, self.columns.item, self.columns.timestamp)
            self._write(EVENTS, bucket, kept.select(names))
        return KeptBucket(
            bucket=bucket,
            users=int((counts >= self.shortest).sum()),
            rows=kept.num_rows,
            dropped_users=int((counts < self.shortest).sum()),
            repeated=self._count_repeated(kept),
        )

    def _write(self, kind: str, bucket: int, table: pa.Table) -> None:
        path = self.directory / kind / f"{bucket:06d}.arrow"
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)

    def _items(self, kept: pa.Table) -> pa.Table:
        """Each item of the bucket with its count, and its features' last values and their time."""
        items = kept[self.columns.item].combine_chunks().dictionary_encode()
        codes = np.asarray(items.indices).astype(np.int64)
        columns: dict[str, Any] = {
            KEY: items.dictionary,
            COUNT: np.bincount(codes, minlength=len(items.dictionary)),
        }
        time = kept[self.columns.timestamp].combine_chunks()
        for name in self.item_features:
            values = kept[name].combine_chunks()
            last = last_row_of_each(codes, time, values)
            columns[name] = values.take(last)
            columns[f"{name} at"] = time.take(last)
        return pa.table(columns)

    def _count_repeated(self, kept: pa.Table) -> int:
        if not kept.num_rows:
            return 0
        names = (self.columns.user, self.columns.item, self.columns.timestamp)
        codes = [
            np.asarray(kept[name].combine_chunks().dictionary_encode().indices) for name in names
        ]
        joined = join_keys(codes)
        if joined is not None:
            return int(kept.num_rows - len(np.unique(joined)))
        return int(kept.num_rows - np.unique(np.stack(codes), axis=1).shape[1])


def last_row_of_each(codes: npt.NDArray[np.int64], time: pa.Array, values: pa.Array) -> pa.Array:
    """The row of each code with the greatest (time, value), in the order of codes."""
    order = order_of_rows([codes, ranks(time), ranks(values)])
    ends = np.flatnonzero(np.diff(codes[order], append=-1))
    return pa.array(order[ends])
