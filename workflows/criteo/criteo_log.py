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
import pandas as pd
import pyarrow as pa

from ...foundation.atomic_write import whole_file
from ...foundation.exceptions import MerlinSimError
from ...schemas.dataset import natural_order
from ..criteo import line_kernel
from ..engine.schedulers import written_by_task
from ..logs.bad_rows import FAIL, BadRow, refuse
from ..logs.json_lines import shown
from ..logs.line_blocks import LineBlock, line_blocks
from .criteo_columns import COLUMNS, FIELDS, KEY_COLUMNS, KEYS, LEAST_NUMBER, NUMBERS, field_name

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

    @property
    def rows(self) -> int:
        """How many rows were read."""
        return len(self.labels)

    def batch(self) -> pa.RecordBatch:
        """Make columns of the rows: a label, keys of 32 bits or null, numbers or NaN."""
        keys = [pa.array(keys.astype(np.uint32), mask=keys < 0) for keys in self.keys]
        columns = [pa.array(self.labels), *keys, *map(pa.array, self.numbers)]
        return pa.RecordBatch.from_arrays(columns, list(COLUMNS))


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
    """What came of a block."""

    number: int
    rows: list[tuple[Path, int]]
    """Its files, and how many rows each has."""
    lines: int
    bad: list[BadRow]
    """By their line in the block."""
    size: int


@dataclass(frozen=True)
class ReadBlock:
    """Reads a block and writes its rows, a file for each piece."""

    directory: Path
    on_bad_rows: str

    def __call__(self, work: tuple[int, LineBlock]) -> BlockRead:
        """Read a block, given its number beside."""
        number, block = work
        lines = 0
        bad: list[BadRow] = []
        rows = []
        for place, piece in enumerate(read_days(block)):
            if piece.bad and self.on_bad_rows == FAIL:
                first = piece.bad[0]
                line = block.lines_before() + lines + first.line
                raise refuse(block.path, BadRow(line, first.reason))
            bad += [BadRow(row.line + lines, row.reason) for row in piece.bad]
            lines += piece.lines
            path = self.directory / f"{number:06d}-{place:06d}.arrow"
            batch = piece.batch()
            with (
                whole_file(path) as whole,
                open(whole, "wb") as file,
                pa.ipc.new_file(file, batch.schema) as writer,
            ):
                writer.write_batch(batch)
            rows.append((path, piece.rows))
        return BlockRead(number, rows, lines, bad, block.size)


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
    for text, _ in _one_ahead(texts) if block.is_stream else texts:
        yield parse(text)


def _one_ahead(texts: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, texts, None)
        while (text := coming.result()) is not None:
            coming = thread.submit(next, texts, None)
            yield text


def parse(text: bytes) -> DayPiece:
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
    return DayPiece(labels[:rows], numbers[:, :rows], keys[:, :rows], lines, problems)


def _reason(text: bytes, entry: Any) -> str:
    _, start, end, code, where = entry.tolist()
    fields = text[start:end].removesuffix(b"\r").split(b"\t")
    if len(fields) != FIELDS:
        return f"expected {FIELDS} columns with tabs between, found {len(fields)}"
    value = shown(fields[where])
    return f"{field_name(where)} (column {where + 1}): expected {EXPECTED[code]}, found {value}"
