"""The Amazon Books 2014 logs: where their interactions and their items' categories stand."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Narrator
from ..behaviour.behaviour_columns import BehaviourColumns
from ..engine.schedulers import Scheduler
from ..features.fitted_numbers import FittedNumbers
from ..logs.bad_rows import FAIL, BadRow, BadRows, refuse
from ..logs.json_lines import read_json_lines
from ..logs.line_blocks import LineBlock, find_text_file, line_blocks
from ..logs.log_source import Piece
from ..logs.times import INTEGER, time_from_text
from .amazon_metadata import CATEGORY, ITEM, SCHEMA, read_metadata_lines

COLUMNS = BehaviourColumns("user_id", "item_id", "timestamp", item_features=("cat_id",))
NO_CATEGORY = "no_category"
REVIEW_SCHEMA = pa.schema(
    [("reviewerID", pa.string()), ("asin", pa.string()), ("unixReviewTime", pa.int64())]
)


@dataclass(frozen=True)
class AmazonReviews:
    """The reviews file as a log; see :class:`~merlin_sim.workflows.logs.log_source.LogSource`."""

    path: Path

    @property
    def columns(self) -> BehaviourColumns:
        """The published names; categories come from the metadata file."""
        return COLUMNS

    @property
    def files(self) -> tuple[Path, ...]:
        """See LogSource."""
        return (self.path,)

    @cached_property
    def _blocks(self) -> list[LineBlock]:
        return line_blocks(self.path)

    def blocks(self) -> list[LineBlock]:
        """See LogSource."""
        return self._blocks

    def checked_with(self, fitted: FittedNumbers) -> AmazonReviews:
        """See LogSource; there are no numbers."""
        return self

    def size(self) -> int:
        """See LogSource."""
        return sum(block.size for block in self._blocks)

    def time_of(self, text: str, option: str) -> int | float:
        """See LogSource; the reviews' times are seconds."""
        for kind in (pa.int64(), pa.timestamp("s")):
            time, expected = time_from_text(text, kind)
            if time is not None:
                return time
        raise MerlinSimError(
            f"`{option}`: expected a number of seconds, or {expected}. Received: {text}."
        )

    def time_kind(self) -> str:
        """See LogSource."""
        return INTEGER

    def read(self, block: LineBlock) -> Generator[Piece, None, None]:
        """See LogSource."""
        for text, done in block.texts():
            table, bad = read_json_lines(text, REVIEW_SCHEMA)
            table = table.rename_columns([COLUMNS.user, COLUMNS.item, COLUMNS.timestamp])
            lines = text.count(b"\n") + (not text.endswith(b"\n"))
            yield Piece(table, lines, bad, done)


@dataclass(frozen=True)
class ReadMetadata:
    """Reads blocks of the metadata file."""

    on_bad_rows: str

    def __call__(self, numbered: tuple[int, LineBlock]) -> tuple[int, int, pa.Table, list[BadRow]]:
        """Read a block: its number, its lines, its items and categories, its bad rows."""
        number, block = numbered
        tables, bad, lines = [SCHEMA.empty_table()], [], 0
        for text, _ in block.texts():
            table, found = read_metadata_lines(text)
            if found and self.on_bad_rows == FAIL:
                line = block.lines_before() + lines + found[0].line
                raise refuse(block.path, BadRow(line, found[0].reason))
            bad += [BadRow(row.line + lines, row.reason) for row in found]
            lines += text.count(b"\n") + (not text.endswith(b"\n"))
            tables.append(table)
        return number, lines, pa.concat_tables(tables), bad


def read_categories(
    path: Path, scheduler: Scheduler, narrator: Narrator, on_bad_rows: str
) -> tuple[dict[str, tuple[pa.Array, pa.Array, str]], BadRows]:
    """Read the metadata file: each item's category, as ``DatasetBuilder.build`` takes it."""
    blocks = line_blocks(path, 4 << 20)
    results: dict[int, Any] = {}
    size = sum(block.size for block in blocks)
    with narrator.phase("reading metadata", size) as report:
        for number, lines, table, bad in scheduler.run(
            ReadMetadata(on_bad_rows), list(enumerate(blocks))
        ):
            results[number] = (lines, table, bad)
            report(blocks[number].size, table.num_rows)
    bad_rows, before = BadRows(str(path)), 0
    for number in sorted(results):
        lines, _, bad = results[number]
        bad_rows.add(bad, before)
        before += lines
    table = pa.concat_tables([results[number][1] for number in sorted(results)])
    if not table.num_rows:
        left_out = f"\n{bad_rows.describe()}" if bad_rows.count else ""
        raise MerlinSimError(f"{path}: expected items with their categories, found none.{left_out}")
    known = (table[ITEM].combine_chunks(), table[CATEGORY].combine_chunks(), NO_CATEGORY)
    return {COLUMNS.item_features[0]: known}, bad_rows


def amazon_files(directory: Path, reviews: str, metadata: str) -> tuple[Path, Path]:
    """Find both files, plain or gzipped, before any work."""
    return find_text_file(directory, reviews), find_text_file(directory, metadata)
