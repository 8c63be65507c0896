"""The log, dealt out by user into buckets on disk, so that no user stands in two of them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...foundation.hashing import hash_keys
from ..amazon import AmazonReviews
from ..behaviour_columns import BehaviourColumns
from ..interactions import with_roles
from ..rules import PART
from ..schedulers import write_arrow, written_by_task
from ..table_log import TableBlock, TableLog
from ..text_lines import BadRow, LineBlock, checked
from ..times import TimeRange

LogSource = TableLog | AmazonReviews
Block = TableBlock | LineBlock
BUCKETS = "buckets"
"""Name of the directory that they stand in."""
BYTES_PER_BUCKET = 128 << 20
BYTES_PER_CORE, FEW_CORES = 8 << 20, 8
"""Less is dealt to several buckets too, for so many cores at most."""
MOST_BUCKETS = 512
BLOCK = 1 << 40
"""More rows than a block of the log has."""


@dataclass(frozen=True)
class DealtPiece:
    """Result of dealing one piece of the log to buckets."""

    block: int
    rows: int
    lines: int
    bad: list[BadRow]
    """By their line in the piece."""
    done: int
    behaviours: Counter[str]
    """How many rows there are of each behaviour, where the log has several."""
    file: str
    """The name of the file that it was dealt out to."""
    times: TimeRange | None
    """From when to when its rows are; None where there is none."""


@dataclass(frozen=True)
class LogDealer:
    """Reads blocks and writes each piece as one file with one record batch per bucket."""

    source: LogSource
    columns: BehaviourColumns
    directory: Path
    buckets: int
    on_bad_rows: str
    parts: Mapping[Path, int] | None = None
    """Whose rows each file has, where files are a split."""

    def __call__(self, numbered: tuple[int, Any]) -> list[DealtPiece]:
        """Deal out a block."""
        return list(self.pieces(numbered))

    def pieces(self, numbered: tuple[int, Any]) -> Generator[DealtPiece, None, None]:
        """Deal out a block, piece by piece."""
        number, block = numbered
        rows_before = 0
        with contextlib.closing(self.source.read(block)) as read:
            for index, piece in enumerate(checked(block, read, self.on_bad_rows)):
                table, behaviours = with_roles(piece.table, self.columns)
                if self.parts is not None:
                    part = np.full(table.num_rows, self.parts[Path(block.path)], np.int8)
                    table = table.append_column(PART, pa.array(part))
                for name in self.columns.log_rows:
                    log_rows = np.arange(table.num_rows) + rows_before + number * BLOCK
                    table = table.append_column(name, pa.array(log_rows, pa.int64()))
                file = f"{number:06d}-{index:06d}.arrow"
                write_dealt(table, self.columns.user, self.buckets, self.directory / file)
                rows = piece.table.num_rows
                rows_before += rows
                times = TimeRange.of(piece.table[self.columns.timestamp], block.path)
                yield DealtPiece(
                    number, rows, piece.lines, piece.bad, piece.done, behaviours, file, times
                )


def write_dealt(table: pa.Table, user: str, buckets: int, path: Path) -> None:
    """Write a table as one file with one record batch per bucket of users."""
    keys = table[user].combine_chunks()
    bucket = (hash_keys(keys) % np.uint64(buckets)).astype(np.uint16)
    order = pa.array(np.argsort(bucket, kind="stable"))
    counts = np.bincount(bucket, minlength=buckets)
    ends = np.cumsum(counts)
    dealt = table.take(order).combine_chunks()
    empty = pa.RecordBatch.from_pylist([], schema=table.schema)
    pieces = (dealt.slice(end - count, count) for end, count in zip(ends, counts, strict=True))
    write_arrow(path, table.schema, ((piece.to_batches() or [empty])[0] for piece in pieces))


def number_of_buckets(raw_bytes: int) -> int:
    """So many buckets that one of them, with all it grows into, is small.

    >>> number_of_buckets(0), number_of_buckets(20 << 20), number_of_buckets(3 << 30)
    (1, 3, 25)
    """
    for_cores = min(FEW_CORES, 1 + raw_bytes // BYTES_PER_CORE)
    return max(for_cores, min(MOST_BUCKETS, 1 + raw_bytes // BYTES_PER_BUCKET))


@dataclass(frozen=True)
class DealtFiles:
    """Files of rows by bucket; travels between processes as their names.

    A reader knows which files there are: one that is missing is an error, not an empty one.
    """

    directory: Path
    names: tuple[str, ...]

    def bucket(self, bucket: int) -> pa.Table:
        """Read one bucket of every file, in the order of their names; refuse a missing file."""
        batches = []
        for name in sorted(self.names):
            with self._map(name) as source:
                batches.append(pa.ipc.open_file(source).get_batch(bucket))
        return pa.Table.from_batches(batches).combine_chunks()

    def empty_table(self) -> pa.Table:
        """Give the columns of the first file, without a row."""
        with self._map(min(self.names)) as source:
            return pa.ipc.open_file(source).schema.empty_table()

    def _map(self, name: str) -> pa.MemoryMappedFile:
        return pa.memory_map(str(written_by_task(self.directory / name)))


def deal_log(
    dealer: LogDealer,
    run: Callable[..., Iterator[list[DealtPiece]]],
    report: Callable[[int, int], None],
) -> list[DealtPiece]:
    """Deal out every block: streams here, one piece after the other, all others as tasks."""
    of_log: Sequence[Block] = dealer.source.blocks()
    blocks = list(enumerate(of_log))
    results = []
    for numbered in [entry for entry in blocks if entry[1].is_stream]:
        before = 0
        with contextlib.closing(dealer.pieces(numbered)) as dealt:
            for piece in dealt:
                report(piece.done - before, piece.rows)
                before = piece.done
                results.append(piece)
    for pieces in run(dealer, [entry for entry in blocks if not entry[1].is_stream]):
        for piece in pieces:
            report(piece.done, piece.rows)
        results += pieces
    return results
