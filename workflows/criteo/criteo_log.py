"""The files of a Criteo log, read in blocks."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...foundation.exceptions import MerlinSimError
from ...schemas.dataset import natural_order
from ..logs.bad_rows import BadRow
from ..logs.json_lines import shown
from ..logs.line_blocks import LineBlock, line_blocks
from . import line_kernel
from .criteo_columns import FIELDS, KEYS, LEAST_NUMBER, NUMBERS, field_name

PATTERN = "day_*"
WHOLE_NUMBER = "a whole number of at most 18 digits, or nothing"
EXPECTED = {
    line_kernel.NO_LABEL: "0 or 1",
    line_kernel.NO_NUMBER: WHOLE_NUMBER,
    line_kernel.LOW_NUMBER: f"a number of at least {LEAST_NUMBER}: log(x + 3) is taken of it",
    line_kernel.NO_KEY: "a key in hexadecimal digits, or nothing",
    line_kernel.WIDE_KEY: "a key of at most 32 bits",
}


@dataclass(frozen=True)
class DayPiece:
    """Rows read, and lines that could not be."""

    labels: npt.NDArray[np.int8]
    """[rows]."""
    numbers: npt.NDArray[np.float32]
    """[13, rows]; NaN where there is none."""
    keys: npt.NDArray[np.int64]
    """[26, rows]; -1 where there is none."""
    lines: int
    """Lines of the file that the piece took."""
    bad: list[BadRow]
    """The bad ones, by their line in the piece."""
    done: int
    """Bytes of the block read so far."""

    @property
    def rows(self) -> int:
        """How many rows were read."""
        return len(self.labels)


def find_days(directory: Path, pattern: str = PATTERN) -> list[Path]:
    """Find a log's files, day_2 before day_10.

    Raises:
        MerlinSimError: Where there is none, or one day stands there twice.
    """
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "does not exist"
        raise MerlinSimError(f"{directory}: expected a directory of day files; it {what}.")
    names = [path for path in directory.iterdir() if fnmatch.fnmatch(path.name, pattern)]
    found = sorted((path for path in names if path.is_file()), key=natural_order)
    if not found:
        raise MerlinSimError(f"{directory}: expected files called {pattern}, found none.")
    days = [path.name.removesuffix(".gz") for path in found]
    twice = sorted({day for day in days if days.count(day) > 1})
    if twice:
        raise MerlinSimError(
            f"{directory}: expected each day once, found {twice[0]} and {twice[0]}.gz."
        )
    return found


def day_blocks(files: list[Path]) -> list[LineBlock]:
    """Cut the files into blocks, in order; an empty file has none."""
    return [block for path in files for block in line_blocks(path) if block.size]


def read_days(block: LineBlock) -> Iterator[DayPiece]:
    """Read a block, a gzipped one piece by piece: the next is unpacked while one is worked on."""
    texts = block.texts()
    for text, done in _one_ahead(texts) if block.is_stream else texts:
        yield parse(text, done)


def _one_ahead(texts: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, texts, None)
        while (text := coming.result()) is not None:
            coming = thread.submit(next, texts, None)
            yield text


def parse(text: bytes, done: int = 0) -> DayPiece:
    """Read whole lines."""
    if not text.endswith(b"\n"):
        text += b"\n"
    most = text.count(b"\n")
    labels = np.empty(most, np.int8)
    numbers = np.empty((NUMBERS, most), np.float32)
    keys = np.empty((KEYS, most), np.int64)
    bad = np.empty((most, 5), np.int64)
    given = np.frombuffer(text, np.uint8)
    rows, wrong, lines = line_kernel.parse_lines(given, labels, numbers, keys, bad)
    problems = [BadRow(int(entry[0]), _reason(text, entry)) for entry in bad[:wrong]]
    return DayPiece(labels[:rows], numbers[:, :rows], keys[:, :rows], lines, problems, done)


def _reason(text: bytes, entry: Any) -> str:
    _, start, end, code, where = entry.tolist()
    line = text[start:end].removesuffix(b"\r")
    if code == line_kernel.WRONG_COUNT:
        return f"expected {FIELDS} columns with tabs between, found {where}"
    value = shown(line.split(b"\t")[where])
    return f"{field_name(where)} (column {where + 1}): expected {EXPECTED[code]}, found {value}"
