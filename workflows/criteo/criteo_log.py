"""The files of a Criteo log, read in blocks: numba loops over their bytes make arrays of lines."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from ...foundation.exceptions import MerlinSimError
from ...schemas.dataset import natural_order
from ..schedulers import write_arrow, written_by_task
from ..text_lines import BadRow, LineBlock, Piece, checked, shown
from .criteo_columns import (
    COLUMNS,
    FIELDS,
    KEY_COLUMNS,
    KEYS,
    LEAST_NUMBER,
    MISSING_KEY,
    NUMBERS,
    field_name,
)

GOOD, NO_LABEL, NO_NUMBER, LOW_NUMBER, NO_KEY, WIDE_KEY = range(6)
"""What is wrong with a line."""
TAB, LINE_FEED, CARRIAGE_RETURN, MINUS, ZERO = 9, 10, 13, 45, 48
MOST_DIGITS = 18
LAST_BEFORE_WIDE = (1 << 28) - 1
"""The largest key to which one more hexadecimal digit can be added within 32 bits."""
DIGITS = np.full(256, -1, np.int64)
"""The value of each byte as a hexadecimal digit."""
DIGITS[[*b"0123456789abcdef"]] = range(16)
DIGITS[[*b"ABCDEF"]] = range(10, 16)


@numba.njit(cache=True, nogil=True)
def parse_lines(
    text: npt.NDArray[np.uint8],
    labels: npt.NDArray[np.int8],
    numbers: npt.NDArray[np.float32],
    keys: npt.NDArray[np.int64],
    bad: npt.NDArray[np.int64],
) -> Any:
    """Read lines; those that cannot be read are left out and listed.

    Args:
        text: [bytes] Whole lines, the last of which ends with a line feed; empty ones are passed
            over.
        labels: [lines] Filled: 0 or 1.
        numbers: [13, lines] Filled: NaN where there is none.
        keys: [26, lines] Filled: ``MISSING_KEY`` where there is none.
        bad: [lines, 5] Filled: line (from 1), where it begins and ends, what is wrong, in which
            field.

    Returns:
        How many rows were read, how many are bad, how many lines there are.
    """
    rows = wrong = line = position = 0
    while position < len(text):
        line += 1
        start = position
        code, where, position = parse_fields(text, start, rows, labels, numbers, keys)
        end = position
        while text[end] != LINE_FEED:
            end += 1
        position = end + 1
        if end == start or (end == start + 1 and text[start] == CARRIAGE_RETURN):
            continue
        if code == GOOD:
            rows += 1
            continue
        bad[wrong] = line, start, end, code, where
        wrong += 1
    return rows, wrong, line


@numba.njit(cache=True, nogil=True)
def parse_fields(
    text: npt.NDArray[np.uint8],
    position: int,
    row: int,
    labels: npt.NDArray[np.int8],
    numbers: npt.NDArray[np.float32],
    keys: npt.NDArray[np.int64],
) -> Any:
    """Read a line up to what is wrong; gives what it is, in which field, and how far it came."""
    label = np.int64(text[position]) - ZERO
    if not 0 <= label <= 1:
        return NO_LABEL, 0, position
    labels[row] = label
    position += 1
    for field in range(NUMBERS):
        if text[position] != TAB:
            return NO_NUMBER if field else NO_LABEL, field, position
        position += 1
        negative = text[position] == MINUS
        position += negative
        first = position
        value = np.int64(0)
        digit = np.int64(text[position]) - ZERO
        while 0 <= digit <= 9:
            value = value * 10 + digit
            position += 1
            digit = np.int64(text[position]) - ZERO
        digits = position - first
        if digits > MOST_DIGITS or (negative and digits == 0):
            return NO_NUMBER, field + 1, position
        value = -value if negative else value
        if value < LEAST_NUMBER:
            return LOW_NUMBER, field + 1, position
        numbers[field, row] = value if digits else np.nan
    for field in range(KEYS):
        if text[position] != TAB:
            return NO_KEY if field else NO_NUMBER, NUMBERS + field, position
        position += 1
        first = position
        value = np.int64(0)
        digit = DIGITS[text[position]]
        while digit >= 0 and value <= LAST_BEFORE_WIDE:
            value = value * 16 + digit
            position += 1
            digit = DIGITS[text[position]]
        if digit >= 0:
            return WIDE_KEY, NUMBERS + 1 + field, position
        keys[field, row] = value if position > first else MISSING_KEY
    if text[position] == CARRIAGE_RETURN and text[position + 1] == LINE_FEED:
        position += 1
    if text[position] != LINE_FEED:
        return NO_KEY, FIELDS - 1, position
    return GOOD, 0, position


PATTERN = "day_*"
WHOLE_NUMBER = "a whole number of at most 18 digits, or nothing"
EXPECTED = {
    NO_LABEL: "0 or 1",
    NO_NUMBER: WHOLE_NUMBER,
    LOW_NUMBER: f"a number of at least {LEAST_NUMBER}: log(x + 3) is taken of it",
    NO_KEY: "a key in hexadecimal digits, or nothing",
    WIDE_KEY: "a key of at most 32 bits",
}


@dataclass(frozen=True)
class RawPart:
    """Rows in a file of this run, in the order of the log."""

    path: Path
    begin: int
    end: int

    def frame(self) -> pd.DataFrame:
        """Read the rows; keys stay arrow's, as pandas has no whole numbers beside nulls.

        The frame is pandas' on machines with a GPU too: the host's cores have read the rows.
        """
        with pa.memory_map(str(written_by_task(self.path))) as file:
            batch = pa.ipc.open_file(file).get_batch(0).slice(self.begin, self.end - self.begin)
        return pd.DataFrame(
            {
                name: pd.arrays.ArrowExtensionArray(pa.chunked_array([column]))
                if name in KEY_COLUMNS
                else column.to_numpy()
                for name, column in zip(COLUMNS, batch.columns, strict=True)
            },
            copy=False,
        )


@dataclass(frozen=True)
class BlockRead:
    """Result of reading a block."""

    number: int
    rows: list[tuple[Path, int]]
    """Its files, and how many rows each has."""
    bad: list[tuple[int, list[BadRow]]]
    """Lines that each piece took, and the bad ones by their line in it."""
    size: int


def read_block(directory: Path, on_bad_rows: str, work: tuple[int, LineBlock]) -> BlockRead:
    """Read a block, given its number beside, and write its rows, a file for each piece."""
    number, block = work
    bad, rows = [], []
    for index, piece in enumerate(checked(block, read_days(block), on_bad_rows)):
        path = directory / f"{number:06d}-{index:06d}.arrow"
        write_arrow(path, piece.table.schema, piece.table.to_batches())
        bad.append((piece.lines, piece.bad))
        rows.append((path, piece.table.num_rows))
    return BlockRead(number, rows, bad, block.size)


def find_days(directory: Path, pattern: str = PATTERN) -> list[Path]:
    """Find a log's files, day_2 before day_10; refuse a day that is there twice."""
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "does not exist"
        raise MerlinSimError(f"{directory}: expected a directory of day files; it {what}.")
    names = [path for path in directory.iterdir() if fnmatch.fnmatch(path.name, pattern)]
    for path in sorted(names, key=natural_order):
        if not path.exists():
            aim = os.readlink(path)
            raise MerlinSimError(
                f"{path}: expected a file, found a link to {aim}, which is not there."
            )
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


def read_days(block: LineBlock) -> Iterator[Piece]:
    """Read a block, a gzipped one piece by piece: the next is unpacked while one is worked on."""
    texts = block.texts()
    for text, done in _one_ahead(texts) if block.is_stream else texts:
        yield Piece(*parse(text), done)


def _one_ahead(texts: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, texts, None)
        while (text := coming.result()) is not None:
            coming = thread.submit(next, texts, None)
            yield text


def parse(text: bytes) -> tuple[pa.Table, int, list[BadRow]]:
    """Read whole lines: a label, keys of 32 bits or null, numbers or NaN; their count, bad ones."""
    if not text.endswith(b"\n"):
        text += b"\n"
    most = text.count(b"\n")
    labels = np.empty(most, np.int8)
    numbers = np.empty((NUMBERS, most), np.float32)
    keys = np.empty((KEYS, most), np.int64)
    bad = np.empty((most, 5), np.int64)
    given = np.frombuffer(text, np.uint8)
    rows, wrong, lines = parse_lines(given, labels, numbers, keys, bad)
    problems = [BadRow(int(entry[0]), _reason(text, entry)) for entry in bad[:wrong]]
    read = [pa.array(column.astype(np.uint32), mask=column < 0) for column in keys[:, :rows]]
    columns = [pa.array(labels[:rows]), *read, *map(pa.array, numbers[:, :rows])]
    return pa.table(columns, list(COLUMNS)), lines, problems


def _reason(text: bytes, entry: Any) -> str:
    _, start, end, code, where = entry.tolist()
    fields = text[start:end].removesuffix(b"\r").split(b"\t")
    if len(fields) != FIELDS:
        return f"expected {FIELDS} columns with tabs between, found {len(fields)}"
    value = shown(fields[where])
    return f"{field_name(where)} (column {where + 1}): expected {EXPECTED[code]}, found {value}"
