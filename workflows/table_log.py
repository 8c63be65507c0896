"""A click log of one's own, in CSV or parquet files with any columns, as a log to read."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..foundation.exceptions import MerlinSimError
from ..schemas.parquet import UNREADABLE, UnreadableFooter, read_footer, reading
from .behaviour_columns import BehaviourColumns
from .csv_file import CsvReader, header_of, is_csv
from .feature import UNITS
from .fitted_numbers import NOTHING_LEARNED, FittedNumbers
from .table_columns import can_be_label, check_types, clean_columns, decimal_problems, labels_of
from .text_lines import BadRow, Piece
from .times import (
    DATE,
    EXPECTED_TIME,
    INTEGER,
    count_of_date,
    is_text,
    kind_of_times,
    kind_of_timestamp,
    time_from_text,
)

HEADER = 1


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

    def lines_before(self) -> int:
        """Rows before the block; a CSV file's header counts as one."""
        return (HEADER if self.is_stream else 0) + self.first_row


@dataclass(frozen=True)
class TableLog:
    """CSV (.csv, .csv.gz, with a header) or parquet files as a log.

    Keys from CSV are text, as they stand there; keys from parquet keep their type, text or whole
    numbers. A log travels to workers, so it holds paths rather than data.
    """

    files: Sequence[Path]
    columns: BehaviourColumns
    fitted: FittedNumbers = NOTHING_LEARNED
    """What the operators of numbers have learned, where they have."""

    def checked_with(self, fitted: FittedNumbers) -> TableLog:
        """The same; rows with a number that what operators learned does not fit are bad ones."""
        return replace(self, fitted=fitted)

    @cached_property
    def _blocks(self) -> list[TableBlock]:
        """Look at every file, before any work."""
        if len({is_csv(Path(path)) for path in self.files}) != 1:
            raise MerlinSimError(
                "A log should be CSV files (.csv, .csv.gz) or parquet files, not both. "
                f"Received: {', '.join(map(str, self.files)) or 'no file'}."
            )
        problems: list[str] = []
        read = [self._look_at(path, problems) for path in map(Path, self.files)]
        check_types([(blocks[0].path, schema) for schema, blocks in read if blocks], self.columns)
        if problems:
            raise MerlinSimError("\n".join(problems))
        blocks = [block for _, of_file in read for block in of_file]
        if not blocks:
            names = ", ".join(map(str, self.files))
            raise MerlinSimError(f"{names}: expected interactions, found none.")
        return blocks

    def _look_at(self, path: Path, problems: list[str]) -> tuple[pa.Schema, list[TableBlock]]:
        """Read the header or the footer of a file; a parquet file without rows has no block."""
        if not path.is_file():
            found = "expected a file, found a directory" if path.is_dir() else "no such file"
            raise MerlinSimError(f"{path}: {found}.")
        try:
            if is_csv(path):
                names = header_of(path)
                block = TableBlock(path, path.stat().st_size, None, 0)
                problems += decimal_problems(path, names, self.columns)
                of_time = {self.columns.timestamp: pa.int64()}  # each row is asked for its own
                return pa.schema([(n, of_time.get(n, pa.string())) for n in names]), [block]
            metadata, schema = read_footer(path)
            return schema, _row_groups(path, metadata) if metadata.num_rows else []
        except OSError as error:
            raise MerlinSimError(f"{path}: cannot be read ({error}).") from error
        except pa.ArrowInvalid as error:
            raise MerlinSimError(f"{path}: expected CSV or parquet ({error}).") from error

    @property
    def first_file(self) -> Path:
        """The first file that has rows, if it is parquet; a CSV file shows it when it is read."""
        return self._blocks[0].path

    def type_of(self, name: str) -> pa.DataType:
        """The type of a column of keys or times, which in CSV is text."""
        path = self.first_file
        return pa.string() if is_csv(path) else read_footer(path)[1].field(name).type

    @cached_property
    def _times(self) -> str | pa.DataType:
        """What times are: the type of all files' column; of text the kind of the first of them."""
        name = self.columns.timestamp
        stored = self.type_of(name)
        if not is_text(stored):
            return stored
        for path in dict.fromkeys(block.path for block in self._blocks):
            with reading(path), contextlib.closing(_batches(path, [name])) as batches:
                texts = (batch.column(0) for batch in batches)
                kind = next(filter(None, map(kind_of_timestamp, texts)), None)
            if kind:
                return kind
        return INTEGER

    @property
    def _kind_of_text(self) -> str:
        return self._times if isinstance(self._times, str) else ""

    def blocks(self) -> list[TableBlock]:
        """What can be read on its own, in order."""
        _ = self._times  # the same in every worker
        return self._blocks

    def size(self) -> int:
        """Bytes of raw data."""
        return sum(block.size for block in self._blocks)

    def time_of(self, text: str, option: str) -> int | float:
        """A time that a person gave by an option, as the number that the log's times become."""
        path, name = self.first_file, self.columns.timestamp
        time, expected = time_from_text(text, self._times)
        unit = self.columns.features.timestamp_unit
        if time is None and unit in UNITS and expected != EXPECTED_TIME[DATE]:
            time = count_of_date(text, unit)
            expected = f"{expected} or {EXPECTED_TIME[DATE]}"
        if time is None:
            hint = "" if unit else " (With `--timestamp_unit` a date may be given for numbers.)"
            raise MerlinSimError(
                f"`{option}`: expected {expected}, as column {name!r} of {path} holds. "
                f"Received: {text}.{hint}"
            )
        return time

    def time_kind(self) -> str:
        """What the log's times are: ``"int"``, ``"float"``, or a date and what it counts.

        Times of one kind can be compared; ``"date in us"`` counts microseconds since 1970.
        """
        return self._times if isinstance(self._times, str) else kind_of_times(self._times)

    def read(self, block: TableBlock) -> Generator[Piece, None, None]:
        """Read a block; closing this ends it early."""
        if block.group is None:
            yield from self._read_csv(block)
            return
        with reading(f"{block.path}, row group {block.group} (after row {block.first_row:,})"):
            with pq.ParquetFile(block.path) as file:
                table = file.read_row_group(block.group, columns=list(self.columns.log))
            rows = table.num_rows
            table, bad = clean_columns(table, self.columns, self._kind_of_text, self.fitted)
        yield Piece(table, rows, bad, block.size)

    def _read_csv(self, block: TableBlock) -> Iterator[Piece]:
        ragged: list[BadRow] = []
        taken = 0  # rows of the file behind us, whatever they were
        try:
            with CsvReader(block.path, list(self.columns.log), ragged) as reader:
                for batch, done in reader.batches():
                    table = pa.Table.from_batches([batch])
                    kind = self._kind_of_text
                    table, bad = clean_columns(table, self.columns, kind, self.fitted)
                    rows, bad = _number_rows(batch.num_rows, bad, ragged, taken)
                    yield Piece(table, rows, bad, min(done, block.size))
                    taken += rows
        except (pa.ArrowInvalid, OSError) as error:
            raise MerlinSimError(f"{block.path}, after row {taken:,}: {error}.") from error
        if ragged:
            rows, bad = _number_rows(0, [], ragged, taken)
            empty = clean_columns(pa.table({}), self.columns, self._kind_of_text, empty=True)[0]
            yield Piece(empty, rows, bad, block.size)


def _number_rows(
    count: int, bad: list[BadRow], ragged: list[BadRow], taken: int
) -> tuple[int, list[BadRow]]:
    """Number bad rows after row ``taken``, between the ragged rows that were skipped.

    Ragged rows are numbered in the file; those that stand before the last row of the batch are
    removed, the others belong to the next batch. Returns how many rows of the file the batch took,
    and all its bad rows, numbered from there.
    """
    skipped = [row.line - HEADER - taken for row in ragged]
    numbers = np.setdiff1d(np.arange(1, count + len(ragged) + 1), skipped)[:count]
    rows = int(numbers[-1]) if count else len(ragged)
    found = [BadRow(int(numbers[row.line - 1]), row.reason) for row in bad]
    found += [
        BadRow(number, row.reason)
        for number, row in zip(skipped, ragged, strict=True)
        if number <= rows
    ]
    ragged[:] = [row for number, row in zip(skipped, ragged, strict=True) if number > rows]
    return rows, sorted(found, key=lambda row: row.line)


def _row_groups(path: Path, metadata: Any) -> list[TableBlock]:
    blocks = []
    rows = 0
    share = path.stat().st_size // max(1, metadata.num_row_groups)
    for group in range(metadata.num_row_groups):
        blocks.append(TableBlock(path, share, group, rows))
        rows += metadata.row_group(group).num_rows
    return blocks


NAMES = {
    "label", "labels", "target", "click", "clicks", "clicked", "clk", "is_click", "is_clicked",
    "isclick", "has_clicked", "converted", "conversion", "is_converted", "purchased", "bought",
    "is_bought", "is_purchased", "liked", "is_like", "y",
}  # fmt: skip
"""What columns of labels are called, in small letters."""
BEHAVIOURS = {
    "behaviour", "behavior", "behaviour_type", "behavior_type", "event", "event_type", "event_name",
    "action", "action_type", "interaction_type",
}  # fmt: skip
"""What columns of behaviours are called."""
MOST_BEHAVIOURS = 20
"""That a message names."""


def unread_labels(log: TableLog) -> list[str]:
    """Name the columns that are called like labels and hold 0 and 1, and are not read.

    Looks at the beginning of the first file alone. What is wrong with a file is left to those who
    read all of it: they know the row.
    """
    return [name for name, values in _unread(log, NAMES).items() if _are_labels(values)]


def unread_behaviours(log: TableLog) -> dict[str, list[str]]:
    """Unread columns that are called like behaviours, with the several that they begin with.

    See :func:`unread_labels`.
    """
    found = {}
    for name, values in _unread(log, BEHAVIOURS).items():
        if not can_be_label(values.type) or pa.types.is_floating(values.type):
            continue
        keys = pc.unique(values).drop_null().to_pylist()
        if 1 < len(keys) <= MOST_BEHAVIOURS:
            shown = (k.decode("utf-8", "replace") if isinstance(k, bytes) else str(k) for k in keys)
            found[name] = sorted(shown)
    return found


def _unread(log: TableLog, names: set[str]) -> dict[str, Any]:
    """The first values of columns that are called so and are not read."""
    path = log.first_file
    try:
        has = header_of(path) if is_csv(path) else read_footer(path)[1].names
        asked = [name for name in has if name.lower() in names and name not in log.columns.log]
        if not asked:
            return {}
        with contextlib.closing(_batches(path, asked)) as batches:
            first = next(batches, None)
        return {} if first is None else {name: first[name] for name in asked}
    except (UnreadableFooter, *UNREADABLE):
        return {}


def _batches(path: Path, names: list[str]) -> Generator[pa.RecordBatch, None, None]:
    if is_csv(path):
        with CsvReader(path, names, []) as reader:
            for batch, _ in reader.batches():
                yield batch
    else:
        with pq.ParquetFile(path) as parquet:
            yield from parquet.iter_batches(columns=names)


def _are_labels(values: pa.Array) -> bool:
    if not len(values) or not can_be_label(values.type):
        return False
    return bool(pc.all(pc.is_valid(labels_of(values))).as_py())
