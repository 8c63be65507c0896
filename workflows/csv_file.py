"""CSV files, plain or gzipped, read as columns of bytes; and the files of a log in directories.

Arrow reads ahead in a thread of its own, which cannot be joined. So the files are arrow's own: a
thread that came back to Python while the interpreter ends would end the process with SIGABRT.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from ..foundation.exceptions import MerlinSimError
from ..foundation.process_wide import one_report_of_undecodable_rows
from .text_lines import BadRow

OTHER_SEPARATORS = (";", "\t", "|")
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""What a file of UTF-16 begins with."""
LONGEST_WAIT = 60.0
"""Seconds that a thread which reads ahead is waited for: it ends with the block it is at."""


def is_csv(path: Path) -> bool:
    """Return whether a file is CSV, by its name."""
    return path.name.endswith((".csv", ".csv.gz"))


def header_of(path: Path) -> list[str]:
    """The names of a file's columns; refuse what is not UTF-8, or not parted by commas."""
    try:
        with CsvReader(path, [], []) as reader:
            names = reader.names
    except UnicodeDecodeError as error:
        raise MerlinSimError(
            f"{path}: expected a header in UTF-8 ({error}): {how_to_convert(error.object)}."
        ) from error
    others = [mark for mark in OTHER_SEPARATORS if len(names) == 1 and mark in names[0]]
    if others:
        mark = repr(others[0])
        raise MerlinSimError(
            f"{path}: expected commas between the columns, found {mark} in the header "
            f"{names[0]!r:.80}. Write the file with commas; in pandas: `read_csv(path, sep={mark}, "
            "dtype=str).to_csv(new_path, index=False)`."
        )
    return names


def how_to_convert(text: bytes) -> str:
    r"""Say what makes UTF-8 of a file that begins with, or holds, bytes that are none.

    >>> how_to_convert(b"caf\xe9")
    '`iconv -f latin1 -t utf8` converts a file of Latin-1'
    """
    if text.startswith(UTF_16_MARKS):
        return "`iconv -f utf16 -t utf8` converts a file of UTF-16"
    return "`iconv -f latin1 -t utf8` converts a file of Latin-1"


class CsvReader:
    """An open CSV file. When it is left, no thread of arrow knows anything of Python any more."""

    def __init__(self, path: Path, columns: list[str], ragged: list[BadRow]) -> None:
        """Nothing is opened yet; ``ragged`` gets the rows of too many or too few fields."""
        self._path = path
        self._columns = columns
        self._ragged = ragged
        self._released = threading.Event()
        self._around = contextlib.ExitStack()
        self._raw: Any = None
        self._reader: Any = None

    @property
    def names(self) -> list[str]:
        """The names of the columns that are read; of all where none was asked for."""
        names: list[str] = self._reader.schema.names
        return names

    def batches(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Give batch by batch as bytes, each with the bytes on disk read so far."""
        while True:
            try:
                batch = self._reader.read_next_batch()
            except StopIteration:
                return
            yield batch, self._raw.tell()

    def __enter__(self) -> CsvReader:
        with contextlib.ExitStack() as around:
            around.callback(self._release)
            around.enter_context(one_report_of_undecodable_rows())
            self._open()
            self._around = around.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._around.close()

    def _open(self) -> None:
        ragged = self._ragged  # not self: arrow keeps what tells it of a row

        def note(row: Any) -> str:
            reason = f"expected {row.expected_columns} fields, found {row.actual_columns}"
            ragged.append(BadRow(row.number, reason))
            return "skip"

        weakref.finalize(note, self._released.set)
        try:
            self._raw = file = pa.OSFile(os.fsencode(self._path))
            if self._path.suffix == ".gz":
                file = pa.CompressedInputStream(file, "gzip")
            self._reader = pa.csv.open_csv(
                file,
                read_options=pa.csv.ReadOptions(use_threads=False, block_size=16 << 20),
                parse_options=pa.csv.ParseOptions(
                    newlines_in_values=True, invalid_row_handler=note
                ),
                convert_options=pa.csv.ConvertOptions(
                    check_utf8=False,
                    include_columns=self._columns,
                    column_types=dict.fromkeys(self._columns, pa.binary()),
                    strings_can_be_null=False,
                ),
            )
        finally:
            del note  # where an error keeps this frame

    def _release(self) -> None:
        """Give all of it back; the thread that reads ahead does so behind the block it is at.

        The file is closed with its last part.
        """
        self._raw = self._reader = None
        self._released.wait(LONGEST_WAIT)


PARQUET = (".parquet", ".pq")
EXPECTED = "expected a directory of CSV (.csv, .csv.gz) or parquet (.parquet, .pq) files"
SHOWN = 5


def files_of_log(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Replace each directory by its files, and those of its own directories, by name.

    Names that begin with ``_`` or ``.`` are those of other programs' notes, and are left out. Files
    of both kinds, or others, are refused.
    """
    files: list[Path] = []
    for path in paths:
        files += _files_in(path) if path.is_dir() else [path]
    return tuple(files)


def _files_in(directory: Path) -> list[Path]:
    found = [path for path in _below(directory, depth=2) if not path.is_dir()]
    of_csv = [path for path in found if is_csv(path)]
    of_parquet = [path for path in found if path.name.endswith(PARQUET)]
    # What lies deeper, and what is neither, is named: nothing of a log is left out in silence.
    others = [path for path in _below(directory) if path not in {*of_csv, *of_parquet}]
    others = [path for path in others if not path.is_dir()]
    if of_csv and of_parquet:
        both = _names(directory, [of_csv[0], of_parquet[0]], " and ")
        raise MerlinSimError(f"{directory}: {EXPECTED} of one kind, found {both}.")
    if others:
        names = _names(directory, others[:SHOWN], ", ") + ", ..." * (len(others) > SHOWN)
        raise MerlinSimError(
            f"{directory}: {EXPECTED}, in it or in directories in it, found also {names}. Move "
            "them, or name the files of the log."
        )
    if not found:
        raise MerlinSimError(f"{directory}: {EXPECTED}, found none.")
    return found


def _below(directory: Path, depth: int | None = None) -> list[Path]:
    """The files of a directory and, so deep, of those in it, in the order of names."""
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        raise MerlinSimError(f"{directory}: {error.strerror or error}.") from error
    found = []
    for path in entries:
        if path.name.startswith(("_", ".")):
            continue
        found.append(path)
        if path.is_dir() and depth != 1:
            found += _below(path, None if depth is None else depth - 1)
    return found


def _names(directory: Path, paths: list[Path], between: str) -> str:
    return between.join(str(path.relative_to(directory)) for path in paths)
