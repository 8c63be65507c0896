"""Text files of lines, plain or gzipped, in blocks; JSON lines of them; and their bad rows.

Bad rows are refused with file and line, or left out and counted.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from ..foundation.exceptions import MerlinSimError

FAIL = "fail"
SKIP = "skip"
POLICIES = (FAIL, SKIP)
EXAMPLES = 3


@dataclass(frozen=True)
class BadRow:
    """One row that cannot be read."""

    line: int
    """Its line, from 1; in what a worker reads first relative to its block."""
    reason: str
    """What was expected and what came."""


@dataclass(frozen=True)
class Piece:
    """Interactions read, and what could not be read."""

    table: pa.Table
    """The columns of :class:`~.behaviour_columns.BehaviourColumns`, without nulls."""
    lines: int
    """Lines (rows) of the file that the piece took."""
    bad: list[BadRow]
    """The bad rows, by their line in the piece."""
    done: int
    """Bytes of the block read so far."""


@dataclass
class BadRows:
    """The bad rows of one file, as a run counts them."""

    path: str
    count: int = 0
    examples: list[BadRow] = field(default_factory=list)

    def add(self, rows: Sequence[BadRow], lines_before: int) -> None:
        """Count the rows of a block that begins after ``lines_before`` lines."""
        self.count += len(rows)
        for row in rows[: EXAMPLES - len(self.examples)]:
            self.examples.append(BadRow(row.line + lines_before, row.reason))

    def describe(self) -> str:
        """Say in a line how many rows were left out, and show the first."""
        shown = "; ".join(f"line {row.line}: {row.reason}" for row in self.examples)
        return f"{self.path}: {self.count:,} bad rows left out ({shown})"


def refuse(path: object, row: BadRow) -> MerlinSimError:
    """The error that a bad row is under ``--on_bad_rows fail``."""
    return MerlinSimError(
        f"{path}, line {row.line}: {row.reason}. "
        "(`--on_bad_rows skip` leaves such rows out and counts them.)"
    )


def checked(block: Any, pieces: Iterable[Any], on_bad_rows: str) -> Iterator[Any]:
    """Hand on a block's pieces; refuse their first bad row where such rows are not left out."""
    lines = 0
    for piece in pieces:
        if piece.bad and on_bad_rows == FAIL:
            first = piece.bad[0]
            line = block.lines_before() + lines + first.line
            raise refuse(block.path, BadRow(line, first.reason))
        lines += piece.lines
        yield piece


def bad_rows_of(read: Iterable[tuple[Any, int, Sequence[BadRow]]]) -> list[BadRows]:
    """The bad rows of each file; read are, in the log's order, a block, lines of it, bad rows."""
    found: dict[Path, BadRows] = {}
    lines: dict[Path, int] = {}
    for block, taken, bad in read:
        if block.path not in found:
            found[block.path], lines[block.path] = BadRows(str(block.path)), block.lines_before()
        found[block.path].add(bad, lines[block.path])
        lines[block.path] += taken
    return [*found.values()]


BLOCK_BYTES = 32 << 20


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of a file: a range of bytes of a plain one, all of a gzipped one."""

    path: Path
    start: int
    end: int

    @property
    def is_stream(self) -> bool:
        """Whether the block can only be read as a stream."""
        return self.path.suffix == ".gz"

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self.end - self.start

    def texts(self) -> Iterator[tuple[bytes, int]]:
        """Give the block's lines in pieces, each with the bytes on disk read so far."""
        try:
            if not self.is_stream:
                with open(self.path, "rb") as file:
                    file.seek(self.start)
                    yield file.read(self.size), self.size
                return
            with open(self.path, "rb") as raw, gzip.GzipFile(fileobj=raw) as file:
                yield from _pieces_of_stream(file, raw, self.path)
        except OSError as error:
            raise MerlinSimError(f"{self.path}: {error.strerror or error}.") from error

    def lines_before(self) -> int:
        """Count the lines before the block."""
        count = 0
        with open(self.path, "rb") as file:
            while file.tell() < self.start:
                count += file.read(min(BLOCK_BYTES, self.start - file.tell())).count(b"\n")
        return count


def _pieces_of_stream(
    file: gzip.GzipFile, raw: BinaryIO, path: Path
) -> Iterator[tuple[bytes, int]]:
    lines = 0
    try:
        while piece := file.read(BLOCK_BYTES) + file.readline():
            yield piece, raw.tell()
            lines += piece.count(b"\n")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise MerlinSimError(
            f"{path}, after line {lines:,}: the gzip stream is damaged or cut short ({error}). "
            "Fetch the file again."
        ) from error


def find_text_file(directory: Path, name: str) -> Path:
    """Find a file by its name, or by its name with ``.gz``."""
    for path in (directory / name, directory / f"{name}.gz"):
        if path.is_file():
            return path
    raise MerlinSimError(f"{directory / name}: no such file, nor {name}.gz.")


def line_blocks(path: Path, block_bytes: int | None = None) -> list[LineBlock]:
    """Cut a file into blocks that begin and end between lines."""
    block_bytes = block_bytes or BLOCK_BYTES
    try:
        size = os.path.getsize(path)
        if path.suffix == ".gz":
            if not size:
                raise MerlinSimError(
                    f"{path}: expected a gzip stream, found an empty file. Fetch the file again."
                )
            return [LineBlock(path, 0, size)]
        ends: list[int] = []
        with open(path, "rb") as file:
            while not ends or ends[-1] < size:
                file.seek(min(size, (ends[-1] if ends else 0) + block_bytes))
                file.readline()
                ends.append(file.tell())
    except OSError as error:
        raise MerlinSimError(f"{path}: {error.strerror or error}.") from error
    return [LineBlock(path, *span) for span in zip([0, *ends], ends, strict=False)]


def read_pieces(
    texts: Iterable[tuple[bytes, int]], read: Callable[[bytes], tuple[pa.Table, list[BadRow]]]
) -> Generator[Piece, None, None]:
    """Read each text of a block: its rows, and the lines that are bad."""
    for text, done in texts:
        table, bad = read(text)
        ends = int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))
        yield Piece(table, ends + (not text.endswith(b"\n")), bad, done)


ARROW_BLOCK = 4 << 20
SHOWN = 60


def read_json_lines(text: bytes, schema: pa.Schema) -> tuple[pa.Table, list[BadRow]]:
    """Read the fields of ``schema`` (strings and int64) from each line; and the bad lines.

    Arrow reads the block in one go. What it refuses, or might have read otherwise than line by line
    (a null, two objects on a line, an object over two lines, bytes that are not UTF-8), is read
    again one line at a time; that reading decides.
    """
    if not text or text.isspace():
        return schema.empty_table(), []
    table = _read_with_arrow(text, schema)
    return (table, []) if table is not None else _read_line_by_line(text, schema)


def _read_with_arrow(text: bytes, schema: pa.Schema) -> pa.Table | None:
    # One object a line, as far as bytes show: each line ends in a brace, the next begins with one.
    # numpy and arrow leave Python's lock alone, as methods of bytes do not.
    letters = np.frombuffer(text, np.uint8)
    breaks = np.flatnonzero(letters[:-1] == ord("\n"))
    before = letters[breaks - 1]
    before = np.where(before == ord("\r"), letters[breaks - 2], before)
    if text[:1] != b"{" or not ((before == ord("}")) & (letters[breaks + 1] == ord("{"))).all():
        return None
    try:
        if not text.isascii():
            offsets = pa.py_buffer(np.array([0, len(text)], np.int64))
            whole = [None, offsets, pa.py_buffer(text)]
            pa.LargeBinaryArray.from_buffers(pa.large_binary(), 1, whole).cast(pa.large_string())
        table = pa.json.read_json(
            pa.BufferReader(text),
            read_options=pa.json.ReadOptions(block_size=ARROW_BLOCK),
            parse_options=pa.json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(breaks) + 1 or table.schema != schema:
        return None
    for column in table.columns:
        if column.null_count:
            return None
        if pa.types.is_string(column.type) and pc.min(pc.binary_length(column)).as_py() == 0:
            return None
    return table


def _read_line_by_line(text: bytes, schema: pa.Schema) -> tuple[pa.Table, list[BadRow]]:
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    bad = []
    for number, line in enumerate(text.split(b"\n"), start=1):
        if not line.strip():
            continue
        values = _read_line(line, schema)
        if isinstance(values, str):
            bad.append(BadRow(number, values))
            continue
        for name, value in zip(schema.names, values, strict=True):
            columns[name].append(value)
    return pa.table(columns, schema), bad


def _read_line(line: bytes, schema: pa.Schema) -> list[Any] | str:
    try:
        fields = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return f"expected UTF-8, found byte 0x{line[error.start]:02x} at {error.start}"
    except (ValueError, RecursionError) as error:
        return f"expected one JSON object, found {shown(line)} ({error})"
    if not isinstance(fields, dict):
        return f"expected one JSON object, found {shown(line)}"
    for column in schema:
        if column.name not in fields:
            return f"expected the key {column.name!r}, found only {', '.join(map(repr, fields))}"
        problem = _check_value(column, fields[column.name])
        if problem:
            return problem
    return [fields[name] for name in schema.names]


def _check_value(field: pa.Field, value: Any) -> str | None:
    if pa.types.is_string(field.type):
        if isinstance(value, str) and value:
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                return f"{field.name!r}: expected text, found a lone surrogate in {value!a:.60}"
            return None
        return f"{field.name!r}: expected a string, not empty, found {value!r:.60}"
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return None
    return f"{field.name!r}: expected a whole number, found {value!r:.60}"


def shown(line: bytes) -> str:
    """The beginning of a line, as a message shows it."""
    text = line.decode("utf-8", "replace").strip()
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")
