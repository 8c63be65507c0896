"""Between the passes: the keys of a column that are frequent enough get ids, by falling count."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...foundation.atomic_write import whole_file, write_array
from ...schemas.item_table import COUNT, ID, KEY
from .count_blocks import CountedKeys
from .key_kernels import gather_up, hexadecimal
from .key_table import KeyTableWriter

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class RankedKeys:
    """What came of a column."""

    column: str
    kept: int
    """Keys with an id of their own."""
    rare: int
    """Keys that share id 0 with those that are missing."""


@dataclass(frozen=True)
class RankKeys:
    """Gives ids to the keys of a column, one part in memory at a time.

    Ids need no sorting of all keys: how many keys have each count says where the ids of a count
    begin, and within a count keys follow one another as they are scattered. What was counted is
    only read, so that a column can be ranked again.
    """

    counted: CountedKeys
    vocabularies: Path
    """The directory ``categories/`` to write to."""
    tables: Path
    """Where tables to look keys up in are made."""

    def __call__(self, work: tuple[str, int]) -> RankedKeys:
        """Rank a column.

        Args:
            work: Its name, and how often a key must have been seen.
        """
        column, threshold = work
        of_part: list[Counter[int]] = []
        rare = 0
        with TemporaryDirectory(prefix=f"{column}.", dir=self.tables) as frequent_keys:
            for part in range(self.counted.parts):
                mixed, counts = add_up(self.counted.pairs(column, part))
                frequent = counts >= threshold
                rare += int((~frequent).sum())
                keys_file, counts_file = _files_of_part(Path(frequent_keys), part)
                _write(keys_file, mixed[frequent])
                _write(counts_file, counts[frequent])
                values, numbers = np.unique(counts[frequent], return_counts=True)
                of_part.append(Counter(dict(zip(values.tolist(), numbers.tolist(), strict=True))))
            self._write_ids(column, Path(frequent_keys), first_ids(of_part))
        return RankedKeys(column, sum(part.total() for part in of_part), rare)

    def _write_ids(self, column: str, frequent_keys: Path, firsts: list[dict[int, int]]) -> None:
        schema = pa.schema([(ID, pa.int64()), (KEY, pa.string()), (COUNT, pa.int64())])
        with (
            whole_file(self.vocabularies / f"{column}.parquet") as vocabulary,
            pq.ParquetWriter(vocabulary, schema, compression="zstd") as writer,
            KeyTableWriter(self.tables, column) as table,
        ):
            for part, first in enumerate(firsts):
                keys_file, counts_file = _files_of_part(frequent_keys, part)
                mixed = np.fromfile(keys_file, np.uint32)
                counts = np.fromfile(counts_file, np.int64)
                ids = ids_of(counts, first)
                table.write(mixed, ids.astype(np.int32))
                columns = [pa.array(ids), key_texts(gather_up(mixed)), pa.array(counts)]
                writer.write_table(pa.table(columns, schema))


def _files_of_part(directory: Path, part: int) -> tuple[Path, Path]:
    return directory / f"{part}.keys", directory / f"{part}.counts"


def _write(path: Path, array: Array) -> None:
    with open(path, "wb") as file:
        write_array(file, array)


def add_up(pairs: Array) -> tuple[Array, Array]:
    """Add up pairs: scattered keys in order, and their counts.

    >>> pairs = np.array([(7 << 32) + 1, (5 << 32) + 2, (7 << 32) + 3], np.uint64)
    >>> [found.tolist() for found in add_up(pairs)]
    [[5, 7], [2, 4]]

    Args:
        pairs: [pairs] Scattered key and count, in the upper and lower half of a number; sorted in
            place.
    """
    pairs.sort()
    mixed = (pairs >> np.uint64(32)).astype(np.uint32)
    begins = np.flatnonzero(np.diff(mixed, prepend=~mixed[:1]))
    counts = (pairs & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return mixed[begins], np.add.reduceat(counts, begins) if len(begins) else counts


def first_ids(of_part: list[Counter[int]]) -> list[dict[int, int]]:
    """Say where the ids of each count begin, part by part.

    >>> first_ids([Counter({9: 1, 2: 2}), Counter({5: 1, 2: 1})])
    [{9: 1, 2: 3}, {5: 2, 2: 5}]

    Args:
        of_part: For each part, how many keys have each count.
    """
    total: Counter[int] = sum(of_part, Counter())
    next_id, following = {}, 1
    for count in sorted(total, reverse=True):
        next_id[count] = following
        following += total[count]
    firsts = []
    for part in of_part:
        firsts.append({count: next_id[count] for count in sorted(part, reverse=True)})
        for count, number in part.items():
            next_id[count] += number
    return firsts


def ids_of(counts: Array, first: dict[int, int]) -> Array:
    """Give the keys of a part their ids.

    >>> ids_of(np.array([2, 9, 2]), {9: 1, 2: 3}).tolist()
    [3, 1, 4]

    Args:
        counts: Of the part's keys.
        first: Where the ids of each count begin.
    """
    order = np.argsort(counts, kind="stable")
    ordered = counts[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    sizes = np.diff(np.append(begins, len(ordered)))
    starts = np.array([first[count] for count in ordered[begins].tolist()], np.int64)
    ids = np.empty(len(counts), np.int64)
    ids[order] = np.repeat(starts - begins, sizes) + np.arange(len(counts))
    return ids


def key_texts(keys: Array) -> pa.Array:
    """Write keys as the log has them: 8 hexadecimal digits.

    >>> key_texts(np.array([10, 0x68FD1E64], np.uint32)).to_pylist()
    ['0000000a', '68fd1e64']
    """
    offsets = np.arange(0, 8 * len(keys) + 1, 8)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(hexadecimal(keys))]
    return pa.Array.from_buffers(pa.large_string(), len(keys), buffers).cast(pa.string())
