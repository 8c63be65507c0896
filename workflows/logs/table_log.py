"""A click log of one's own, in CSV or parquet files with any columns, as a log to read."""

from __future__ import annotations

import contextlib
import gzip
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ...foundation.exceptions import MerlinSimError
from ...schemas.parquet_footer import UNREADABLE, read_footer, why
from ..behaviour.behaviour_columns import BehaviourColumns
from .bad_rows import BadRow
from .log_source import Piece
from .table_columns import check_types, clean_columns, kind_of_timestamp, text_columns

HEADER = 1
DAMAGE = (OSError, EOFError, zlib.error)


@dataclass(frozen=True)
class TableBlock:
    """A CSV file, or some row groups of a parquet file."""

    path: Path
    size: int
    group: int | None
    first_row: int

    @property
    def is_stream(self) -> bool:
        """Whether it is read in many pieces: a CSV file is."""
        return self.group is None

    @property
    def header(self) -> int:
        """A CSV file has one."""
        return HEADER if self.is_stream else 0

    def lines_before(self) -> int:
        """Rows before the block; a CSV file's header counts as one."""
        return self.header + self.first_row


@dataclass(frozen=True)
class TableLog:
    """CSV (.csv, .csv.gz, with a header) or parquet files as a log.

    Keys from CSV are text, as they stand there; keys from parquet keep their type, text or whole
    numbers. See :class:`~merlin_sim.workflows.logs.log_source.LogSource`.
    """

    files: Sequence[Path]
    columns: BehaviourColumns

    @cached_property
    def _blocks(self) -> list[TableBlock]:
        """Look at every file, before any work."""
        if len({_is_csv(Path(path)) for path in self.files}) != 1:
            raise MerlinSimError(
                "A log should be CSV files (.csv, .csv.gz) or parquet files, not both. "
                f"Received: {', '.join(map(str, self.files)) or 'no file'}."
            )
        blocks: list[TableBlock] = []
        schemas = []
        for path in map(Path, self.files):
            if not path.is_file():
                raise MerlinSimError(f"{path}: no such file.")
            try:
                if _is_csv(path):
                    schemas.append((path, text_columns(_header(path), self.columns)))
                    blocks.append(TableBlock(path, path.stat().st_size, None, 0))
                else:
                    metadata, schema = read_footer(path)
                    schemas.append((path, schema))
                    blocks += _row_groups(path, metadata)
            except UnicodeDecodeError as error:
                raise MerlinSimError(f"{path}: expected a header in UTF-8 ({error}).") from error
            except DAMAGE as error:
                raise MerlinSimError(f"{path}: cannot be read ({error}).") from error
            except pa.ArrowInvalid as error:
                raise MerlinSimError(f"{path}: expected CSV or parquet ({error}).") from error
        check_types(schemas, self.columns)
        return blocks

    @cached_property
    def _timestamp_kind(self) -> str:
        for path in map(Path, self.files):
            if _is_csv(path):
                with open(path, "rb") as raw, _open(path, raw) as file:
                    for batch in _batches(file, [self.columns.timestamp], []):
                        kind = kind_of_timestamp(batch.column(0))
                        if kind:
                            return kind
        return "int"

    def blocks(self) -> list[TableBlock]:
        """See LogSource."""
        if any(block.is_stream for block in self._blocks):
            _ = self._timestamp_kind  # the same in every worker
        return self._blocks

    def size(self) -> int:
        """See LogSource."""
        return sum(block.size for block in self._blocks)

    def read(self, block: TableBlock) -> Iterator[Piece]:
        """See LogSource."""
        if block.group is None:
            yield from self._read_csv(block)
            return
        try:
            with pq.ParquetFile(block.path) as file:
                table = file.read_row_group(block.group, columns=list(self.columns.log))
            rows = table.num_rows
            table, bad = clean_columns(table, self.columns, "")
        except UNREADABLE as error:
            raise MerlinSimError(
                f"{block.path}, row group {block.group} (after row {block.first_row:,}): cannot be "
                f"read ({why(error)})."
            ) from error
        yield Piece(table, rows, bad, block.size)

    def _read_csv(self, block: TableBlock) -> Iterator[Piece]:
        ragged: list[BadRow] = []
        taken = 0  # rows of the file behind us, whatever they were
        try:
            with open(block.path, "rb") as raw, _open(block.path, raw) as file:
                for batch in _batches(file, list(self.columns.log), ragged):
                    table = pa.Table.from_batches([batch])
                    table, bad = clean_columns(table, self.columns, self._timestamp_kind)
                    rows, bad = _number_rows(batch.num_rows, bad, ragged, taken)
                    yield Piece(table, rows, bad, min(raw.tell(), block.size))
                    taken += rows
        except (pa.ArrowInvalid, *DAMAGE) as error:
            raise MerlinSimError(f"{block.path}, after row {taken:,}: {error}.") from error
        if ragged:
            rows, bad = _number_rows(0, [], ragged, taken)
            empty = clean_columns(pa.table({}), self.columns, self._timestamp_kind, empty=True)[0]
            yield Piece(empty, rows, bad, block.size)


def _is_csv(path: Path) -> bool:
    return path.name.endswith((".csv", ".csv.gz"))


def _open(path: Path, raw: IO[bytes]) -> IO[bytes]:
    return cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if path.suffix == ".gz" else raw


def _header(path: Path) -> list[str]:
    with (
        open(path, "rb") as raw,
        _open(path, raw) as file,
        _told_once(),
        _reader(file, [], []) as reader,
    ):
        names: list[str] = reader.schema.names
        return names


def _number_rows(
    count: int, bad: list[BadRow], ragged: list[BadRow], taken: int
) -> tuple[int, list[BadRow]]:
    """Give bad rows their place after row ``taken``, between the ragged rows that were skipped.

    Args:
        count: Rows of the batch.
        bad: Bad ones among them, numbered within the batch.
        ragged: Rows that were no rows, numbered in the file; those that stand before the batch's
            last row are removed, the others belong to the next batch.
        taken: Rows of the file before this batch.

    Returns:
        How many rows of the file the batch took, and all its bad rows, numbered from there.
    """
    skipped = [row.line - HEADER - taken for row in ragged]
    places = np.setdiff1d(np.arange(1, count + len(ragged) + 1), skipped)[:count]
    rows = int(places[-1]) if count else len(ragged)
    found = [BadRow(int(places[row.line - 1]), row.reason) for row in bad]
    found += [
        BadRow(place, row.reason)
        for place, row in zip(skipped, ragged, strict=True)
        if place <= rows
    ]
    ragged[:] = [row for place, row in zip(skipped, ragged, strict=True) if place > rows]
    return rows, sorted(found, key=lambda row: row.line)


def _batches(file: IO[bytes], columns: list[str], ragged: list[BadRow]) -> Iterator[Any]:
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


def _row_groups(path: Path, metadata: Any) -> list[TableBlock]:
    blocks = []
    rows = 0
    share = path.stat().st_size // max(1, metadata.num_row_groups)
    for group in range(metadata.num_row_groups):
        blocks.append(TableBlock(path, share, group, rows))
        rows += metadata.row_group(group).num_rows
    return blocks
