"""The first pass: every block's keys are counted and dealt out over parts on disk.

A part of a column is a file to which every block appends its pairs of scattered key and count. How
much memory a column takes is then a matter of how many parts it has, not of how many keys.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

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


@dataclass(frozen=True)
class BlockCount:
    """What came of one block."""

    block: int
    rows: int
    lines: int
    bad: list[BadRow]
    """By their line in the block."""
    size: int


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
        for piece in read_days(block):
            if piece.bad and self.on_bad_rows == FAIL:
                refuse_first(block, piece, lines)
            bad += [BadRow(row.line + lines, row.reason) for row in piece.bad]
            begin, end = (0, piece.rows) if span is None else (s - rows for s in span)
            self._count(piece, max(begin, 0), min(end, piece.rows))
            rows += piece.rows
            lines += piece.lines
        return BlockCount(number, rows, lines, bad, block.size)

    def _count(self, piece: DayPiece, begin: int, end: int) -> None:
        if begin >= end:
            return
        for name, keys in zip(KEY_COLUMNS, piece.keys, strict=True):
            pairs, begins = count_keys(keys[begin:end], self.part_bits)
            for part in np.flatnonzero(np.diff(begins)).tolist():
                append(
                    part_file(self.directory, name, part), pairs[begins[part] : begins[part + 1]]
                )


def part_file(directory: Path, column: str, part: int) -> Path:
    """Where the pairs of a part of a column stand."""
    return directory / f"{column}.{part}.pairs"


def append(path: Path, array: np.ndarray[Any, Any]) -> None:
    """Append to a file in one go, so that blocks of other threads and processes do not mix in."""
    data = array.tobytes()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        written = os.write(descriptor, data)
    finally:
        os.close(descriptor)
    if written < len(data):
        raise OSError(28, "No space left on device", str(path))


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
