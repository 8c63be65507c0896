"""CSV files, plain or gzipped, read as columns of bytes."""

from __future__ import annotations

import contextlib
import gzip
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.csv

from .bad_rows import BadRow

DAMAGE = (OSError, EOFError, zlib.error)
"""What reading a file that is damaged raises, beside arrow's errors."""


def is_csv(path: Path) -> bool:
    """Tell by its name whether a file is CSV."""
    return path.name.endswith((".csv", ".csv.gz"))


def open_csv(path: Path, raw: IO[bytes]) -> IO[bytes]:
    """Unpack what is gzipped."""
    return cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if path.suffix == ".gz" else raw


def header_of(path: Path) -> list[str]:
    """The names of a file's columns."""
    with (
        open(path, "rb") as raw,
        open_csv(path, raw) as file,
        _told_once(),
        _reader(file, [], []) as reader,
    ):
        names: list[str] = reader.schema.names
        return names


def read_batches(file: IO[bytes], columns: list[str], ragged: list[BadRow]) -> Iterator[Any]:
    """Read some columns, batch by batch.

    Args:
        file: What :func:`open_csv` gives.
        columns: Their names.
        ragged: Gets the rows of too many or too few fields, which are skipped.
    """
    with _told_once(), _reader(file, columns, ragged) as reader:
        yield from reader


@contextlib.contextmanager
def _told_once() -> Iterator[None]:
    """Leave to arrow's error what is no UTF-8 in a row of too many or too few fields.

    Arrow cannot give such a row to whoever asked for it: it prints a traceback that nobody can
    catch, and then raises an error that says the row.
    """
    kept = sys.unraisablehook

    def tell(problem: Any) -> None:
        if not isinstance(problem.exc_value, UnicodeDecodeError):
            kept(problem)

    sys.unraisablehook = tell
    try:
        yield
    finally:
        sys.unraisablehook = kept


def _reader(file: IO[bytes], columns: list[str], ragged: list[BadRow]) -> Any:
    """Read a CSV file's columns as bytes; what is no row goes to ``ragged``."""

    def note(row: Any) -> str:
        reason = f"expected {row.expected_columns} fields, found {row.actual_columns}"
        ragged.append(BadRow(row.number, reason))
        return "skip"

    return pa.csv.open_csv(
        file,
        read_options=pa.csv.ReadOptions(use_threads=False, block_size=16 << 20),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=note),
        convert_options=pa.csv.ConvertOptions(
            check_utf8=False,
            include_columns=columns,
            column_types=dict.fromkeys(columns, pa.binary()),
            strings_can_be_null=False,
        ),
    )
