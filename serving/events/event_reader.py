"""Files of events, read a piece at a time: JSON lines, CSV, parquet."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any

import pyarrow.parquet as pq

from ...foundation.exceptions import MerlinSimError
from ...schemas.parquet import UNREADABLE, file_pieces, read_footer, why
from ..limits import RequestError
from .csv_cells import NOT_UTF8, not_utf8, parse_json
from .row_encoder import Encoder

READERS = (".jsonl", ".csv", ".parquet")
ROWS_PER_READ = 1024
OF_LATIN_1 = " (a file in Latin-1 becomes UTF-8 by `iconv -f WINDOWS-1252 -t UTF-8`)"
"""What to do where a file has a byte that is no UTF-8."""


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
    encoder: Encoder
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
            return int(read_footer(self.path)[0].num_rows)
        return self.path.stat().st_size

    def rows(self) -> Iterator[Row]:
        """Read row by row.

        Raises:
            MerlinSimError: Where the file cannot be read, or is no UTF-8 text.
        """
        try:
            yield from self._parquet_rows() if self.path.suffix == ".parquet" else self._text_rows()
        except OSError as error:
            raise MerlinSimError(
                f"{self.path}: cannot be read: {error.strerror or error}"
            ) from error

    def _text_rows(self) -> Iterator[Row]:
        with open(self.path, "rb") as file:
            begin = file.read(4)
        if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise MerlinSimError(
                f"{self.path}: expected UTF-8, received UTF-16. Write it as UTF-8, as "
                f"`iconv -f UTF-16 -t UTF-8 {self.path}` does."
            )
        if self.path.suffix == ".csv":
            # Bytes that are not valid UTF-8 are kept, so that the error can name their row.
            with open(
                self.path, encoding="utf-8-sig", errors="surrogateescape", newline=""
            ) as file:
                yield from self._csv_rows(file)
        else:
            with open(self.path, "rb") as file:
                yield from _json_rows(file)

    def _parquet_rows(self) -> Iterator[Row]:
        names = read_footer(self.path)[1].names
        self._check_columns(names, "the columns")
        line = 0
        try:
            with pq.ParquetFile(self.path) as file:
                for batch in file_pieces(file, names, ROWS_PER_READ):
                    for fields in batch.to_pylist():
                        line += 1
                        yield Row(line, fields, line)
        except (*UNREADABLE, ValueError) as error:
            where = f"{self.path}, after row {line}"
            raise MerlinSimError(f"{where}: cannot be read as parquet: {why(error)}") from error

    def _csv_rows(self, file: TextIOWrapper) -> Iterator[Row]:
        # csv refuses fields above 128 KiB; a list of candidates may be longer.
        csv.field_size_limit(1 << 30)
        reader = csv.reader(file, strict=True)
        header = next(reader, [])
        if (problem := _no_utf8(header, header)) is not None:
            raise MerlinSimError(f"{self.path}, line 1: {problem}")
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
        wanted = self.encoder.fields_for(found)
        missing = [name for name in wanted if name not in found]
        if missing:
            raise MerlinSimError(
                f"{self.path}: expected {expected} {', '.join(wanted)}. "
                f"Received: {', '.join(found)!r:.200}, without {', '.join(missing)}."
            )

    def _csv_fields(self, header: list[str], cells: list[str]) -> Any:
        if len(cells) != len(header):
            return RequestError(f"expected {len(header)} fields, found {len(cells)}")
        if (problem := _no_utf8(header, cells)) is not None:
            return RequestError(problem)
        try:
            return self.encoder.from_cells(dict(zip(header, cells, strict=True)))
        except RequestError as error:
            return error


def _no_utf8(header: list[str], cells: list[str]) -> str | None:
    """Say which cell has a byte that is no UTF-8, which reading has kept as a surrogate."""
    for name, cell in zip(header, cells, strict=True):
        try:
            cell.encode()
        except UnicodeEncodeError as error:
            byte = ord(cell[error.start]) - 0xDC00
            shown = name.encode("utf-8", "surrogateescape").decode("latin-1")
            return f"{shown}: {not_utf8(byte)}{OF_LATIN_1}"
    return None


def _json_rows(file: IO[bytes]) -> Iterator[Row]:
    done = 0
    for line, text in enumerate(file, start=1):
        done += len(text)
        if text.strip():
            fields = parse_json(text)
            if isinstance(fields, RequestError) and str(fields).startswith(NOT_UTF8):
                fields = RequestError(f"{fields}{OF_LATIN_1}")
            yield Row(line, fields, done)


def check_ending(option: str, path: Path, endings: tuple[str, ...]) -> None:
    """Refuse a file whose ending says nothing that can be read or written."""
    if path.suffix not in endings:
        raise MerlinSimError(
            f"`{option}` should end in {', '.join(endings)}. Received: `{option}` = {path}."
        )
