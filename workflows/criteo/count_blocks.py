"""The first pass: every block's keys are counted, column by column and part by part.

Each piece of a block has a file of its own with its pairs of scattered key and count, so a task
that runs again writes the same file again and no key is counted twice. A part of a column is read
from all files together: how much memory a column takes depends on the number of parts, not of keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...foundation.atomic_write import whole_file, write_array
from ...foundation.exceptions import MerlinSimError
from ..engine.schedulers import written_by_task
from ..logs.bad_rows import FAIL, BadRow, refuse
from ..logs.line_blocks import LineBlock
from .criteo_columns import KEY_COLUMNS
from .criteo_log import DayPiece, read_days
from .key_kernels import count_keys

BYTES_PER_ROW = 200
"""About what a line takes."""
BYTES_OF_A_STREAM = 3
"""About how many bytes one byte of a gzipped file becomes."""
BYTES_PER_PART = 256 << 20
MOST_PART_BITS = 10
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class BlockCount:
    """What came of one block."""

    block: int
    rows: int
    lines: int
    bad: list[BadRow]
    """By their line in the block."""
    size: int
    files: tuple[str, ...]
    """The names of the files with its counts."""


@dataclass(frozen=True)
class CountBlock:
    """Reads a block and counts the keys of some of its rows."""

    directory: Path
    part_bits: int
    on_bad_rows: str

    def __call__(self, work: tuple[int, LineBlock, tuple[int, int] | None]) -> BlockCount:
        """Count a block.

        Args:
            work: Its number, the block, and between which of its rows keys are counted; None for
                all of them.
        """
        number, block, span = work
        rows = lines = 0
        bad: list[BadRow] = []
        files = []
        for place, piece in enumerate(read_days(block)):
            if piece.bad and self.on_bad_rows == FAIL:
                refuse_first(block, piece, lines)
            bad += [BadRow(row.line + lines, row.reason) for row in piece.bad]
            begin, end = (0, piece.rows) if span is None else (s - rows for s in span)
            begin, end = max(begin, 0), min(end, piece.rows)
            if begin < end:
                files.append(f"{number:06d}-{place:06d}.pairs")
                self._count(piece, begin, end, self.directory / files[-1])
            rows += piece.rows
            lines += piece.lines
        return BlockCount(number, rows, lines, bad, block.size, tuple(files))

    def _count(self, piece: DayPiece, begin: int, end: int, path: Path) -> None:
        """Write where the pairs of each part of each column begin, then all pairs."""
        counted = [count_keys(keys[begin:end], self.part_bits) for keys in piece.keys]
        sizes = [len(pairs) for pairs, _ in counted]
        firsts = np.cumsum([0, *sizes[:-1]])
        begins = [begins + first for (_, begins), first in zip(counted, firsts, strict=True)]
        with whole_file(path) as whole, open(whole, "wb") as file:
            for array in (*begins, *(pairs for pairs, _ in counted)):
                write_array(file, array)


@dataclass(frozen=True)
class CountedKeys:
    """The files that :class:`CountBlock` wrote; travels between processes as their names."""

    directory: Path
    part_bits: int
    files: tuple[str, ...]

    @property
    def parts(self) -> int:
        """Into how many parts the keys of a column are dealt out."""
        return 1 << self.part_bits

    def pairs(self, column: str, part: int) -> Array:
        """Read the pairs of a part of a column, of all files.

        Raises:
            MerlinSimError: Where a file is missing or too short.
        """
        number = KEY_COLUMNS.index(column)
        found = [self._read(self.directory / name, number, part) for name in self.files]
        return np.concatenate([np.empty(0, np.uint64), *found])

    def _read(self, path: Path, column: int, part: int) -> Array:
        begins_of_column = self.parts + 1
        with open(written_by_task(path), "rb", buffering=0) as file:
            file.seek(np.dtype(np.int64).itemsize * (column * begins_of_column + part))
            span = np.fromfile(file, np.int64, 2)
            if len(span) == 2:
                before = len(KEY_COLUMNS) * begins_of_column + span[0]
                file.seek(np.dtype(np.uint64).itemsize * before)
                pairs = np.fromfile(file, np.uint64, span[1] - span[0])
                if len(pairs) == span[1] - span[0]:
                    return pairs
        raise MerlinSimError(
            f"{path}: expected the counts of a whole block, found only {path.stat().st_size:,} "
            "bytes. Run the command again."
        )


def refuse_first(block: LineBlock, piece: DayPiece, lines: int) -> None:
    """Stop at the first bad row of a piece.

    Args:
        block: The block.
        piece: The piece.
        lines: Lines of the block before it.
    """
    first = piece.bad[0]
    raise refuse(block.path, BadRow(block.lines_before() + lines + first.line, first.reason))


def choose_part_bits(blocks: Sequence[LineBlock]) -> int:
    """Say into how many parts (2 to the power of it) the keys of a column are dealt out."""
    size = sum(block.size * (BYTES_OF_A_STREAM if block.is_stream else 1) for block in blocks)
    pairs = size // BYTES_PER_ROW * np.dtype(np.uint64).itemsize
    return min(MOST_PART_BITS, (pairs // BYTES_PER_PART).bit_length())
