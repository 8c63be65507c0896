"""Files of events, read a piece at a time: JSON lines, CSV, parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..schemas.exceptions import MerlinSimError
from .event import CANDIDATES, HISTORY
from .event_encoder import EventEncoder
from .limits import RequestError

READERS = (".jsonl", ".csv", ".parquet")
ROWS_PER_READ = 1024


@dataclass(frozen=True)
class Row:
    """One row of a file."""

    line: int
    """Its line, from 1; of a parquet file its row."""
    fields: Any
    """What stands in it; a RequestError where that cannot be told."""
    done: int
    """How much of the file's ``size`` has been read with it."""


@dataclass(frozen=True)
class EventFile:
    """A file of events; its name's ending says how it is written.

    In CSV the columns are the user's, ``history`` and ``candidates`` (and the time intervals). A
    list is JSON, or keys separated by ``|``. An empty field is a null.
    """

    path: Path
    encoder: EventEncoder
    """Knows which columns hold numbers."""

    def __post_init__(self) -> None:
        """Look whether the file is there and how it is written."""
        check_ending("--input", self.path, READERS)
        if not self.path.is_file():
            what = "is not a file" if self.path.exists() else "does not exist"
            raise MerlinSimError(f"{self.path}: expected a file of events; it {what}")

    def size(self) -> int:
        """The file's length: rows of parquet, bytes of the others."""
        if self.path.suffix == ".parquet":
            return int(self._metadata().num_rows)
        return self.path.stat().st_size

    def rows(self) -> Iterator[Row]:
        """Read row by row."""
        if self.path.suffix == ".parquet":
            yield from self._parquet_rows()
        elif self.path.suffix == ".csv":
            # What is no UTF-8 is kept, so that its row can be told of.
            with open(
                self.path, encoding="utf-8-sig", errors="surrogateescape", newline=""
            ) as file:
                yield from self._csv_rows(file)
        else:
            with open(self.path, "rb") as file:
                yield from _json_rows(file)

    def _metadata(self) -> Any:
        try:
            return pq.read_metadata(self.path)
        except (OSError, pa.ArrowException) as error:
            raise MerlinSimError(f"{self.path}: cannot be read as parquet: {error}") from error

    def _parquet_rows(self) -> Iterator[Row]:
        names = self._metadata().schema.to_arrow_schema().names
        self._check_columns(names, "the columns")
        line = 0
        with pq.ParquetFile(self.path) as file:
            try:
                for batch in file.iter_batches(ROWS_PER_READ):
                    for fields in batch.to_pylist():
                        line += 1
                        yield Row(line, fields, line)
            except (OSError, pa.ArrowException) as error:
                where = f"{self.path}, after row {line}"
                raise MerlinSimError(f"{where}: cannot be read as parquet: {error}") from error

    def _csv_rows(self, file: TextIOWrapper) -> Iterator[Row]:
        # csv refuses fields above 128 KiB; a list of candidates may be longer.
        csv.field_size_limit(1 << 30)
        reader = csv.reader(file, strict=True)
        header = next(reader, [])
        self._check_columns(header, "a first line with the columns")
        while True:
            line = reader.line_num + 1
            try:
                cells = next(reader, None)
            except csv.Error as error:
                yield Row(line, RequestError(f"expected CSV: {error}"), file.buffer.tell())
                continue
            if cells is None:
                return
            if cells:
                yield Row(line, self._csv_fields(header, cells), file.buffer.tell())

    def _check_columns(self, found: list[str], expected: str) -> None:
        wanted = [column.name for column in self.encoder.columns.users]
        wanted += [HISTORY, CANDIDATES]
        wanted += [c.name for c in (self.encoder.columns.intervals,) if c is not None]
        missing = [name for name in wanted if name not in found]
        if missing:
            raise MerlinSimError(
                f"{self.path}: expected {expected} {', '.join(wanted)}. "
                f"Received: {', '.join(found)!r:.200}, without {', '.join(missing)}."
            )

    def _csv_fields(self, header: list[str], cells: list[str]) -> Any:
        if len(cells) != len(header):
            return RequestError(f"expected {len(header)} fields, found {len(cells)}")
        try:
            ",".join(cells).encode("utf-8")
        except UnicodeEncodeError:
            return RequestError("expected UTF-8")
        fields = dict(zip(header, cells, strict=True))
        found: dict[str, Any] = {}
        try:
            for column, lookup in zip(self.encoder.columns.users, self.encoder.users, strict=True):
                found[column.name] = csv_key(fields[column.name], column.name, lookup.is_text)
            is_text = self.encoder.items[0].is_text
            for name in (HISTORY, CANDIDATES):
                found[name] = csv_list(fields[name], name, is_text)
            if self.encoder.columns.intervals is not None:
                name = self.encoder.columns.intervals.name
                found[name] = csv_numbers(fields[name], name)
        except RequestError as error:
            return error
        return found


def csv_key(cell: str, where: str, is_text: bool) -> Any:
    """A key in CSV: text as it is, a whole number where the vocabulary has numbers.

    >>> csv_key("7", "user", is_text=False), csv_key("7", "user", is_text=True)
    (7, '7')
    """
    if not cell:
        return None
    if is_text:
        return cell
    try:
        return int(cell)
    except ValueError:
        raise RequestError(f"{where}: expected a whole number, received {cell!r:.60}") from None


def csv_list(cell: str, where: str, is_text: bool) -> list[Any]:
    """A list in CSV: JSON, or keys separated by ``|``.

    >>> csv_list("a|b", "history", True), csv_list('["a", {"item": "b"}]', "history", True)
    (['a', 'b'], ['a', {'item': 'b'}])
    """
    if cell.startswith("["):
        try:
            return list(json.loads(cell))
        except (ValueError, RecursionError) as error:
            raise RequestError(f"{where}: expected a JSON list: {_json_problem(error)}") from None
    parts = cell.split("|") if cell else []
    return [csv_key(part, f"{where}[{i}]", is_text) for i, part in enumerate(parts)]


def csv_numbers(cell: str, where: str) -> list[float]:
    """Numbers in CSV: a JSON list, or separated by ``|``.

    >>> csv_numbers("1.5|2", "hours"), csv_numbers("[1.5, 2]", "hours")
    ([1.5, 2.0], [1.5, 2])
    """
    if cell.startswith("["):
        return csv_list(cell, where, is_text=False)
    try:
        return [float(part) for part in cell.split("|")] if cell else []
    except ValueError as error:
        raise RequestError(f"{where}: expected numbers: {error}") from None


def _json_rows(file: IO[bytes]) -> Iterator[Row]:
    done = 0
    for line, text in enumerate(file, start=1):
        done += len(text)
        if text.strip():
            yield Row(line, parse_json(text), done)


def parse_json(text: bytes | str) -> Any:
    """Read one JSON value; a RequestError, returned, says why it is none.

    >>> parse_json(b'{"a": 1}')
    {'a': 1}
    """
    try:
        return json.loads(text)
    except UnicodeDecodeError as error:
        return RequestError(f"expected UTF-8, found byte 0x{error.object[error.start]:02x}")
    except (ValueError, RecursionError) as error:
        return RequestError(f"expected one JSON object: {_json_problem(error)}")


def _json_problem(error: Exception) -> str:
    """What is wrong with a text in one line: its own lines are not the file's."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, at character {error.pos + 1}"
    return str(error)


def check_ending(option: str, path: Path, endings: tuple[str, ...]) -> None:
    """Refuse a file whose ending says nothing that can be read or written."""
    if path.suffix not in endings:
        raise MerlinSimError(
            f"`{option}` should end in {', '.join(endings)}. Received: `{option}` = {path}."
        )
