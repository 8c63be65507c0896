"""The Amazon Books 2014 logs: where their interactions and their items' categories stand.

The metadata file has one Python literal a line, of which asin and categories are taken. Nearly all
lines are dicts as ``repr`` writes them, nested no deeper than two. One regular expression knows
those and finds both values; any other line is parsed with :func:`ast.literal_eval`, which takes
literals only, runs nothing, and is some 20 times slower. What the expression accepts, literal_eval
reads in the same way; the tests compare the two.
"""

from __future__ import annotations

import ast
import re
import string
import warnings
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..foundation.exceptions import MerlinSimError
from ..foundation.progress import Reporter
from .behaviour_columns import BehaviourColumns
from .fitted_numbers import FittedNumbers
from .schedulers import Scheduler
from .text_lines import (
    BadRow,
    BadRows,
    LineBlock,
    Piece,
    bad_rows_of,
    checked,
    line_blocks,
    read_json_lines,
    read_pieces,
    shown,
)
from .times import INTEGER, time_from_text

ITEM = "item"
CATEGORY = "category"
SCHEMA = pa.schema([(ITEM, pa.string()), (CATEGORY, pa.string())])


def _several(entry: str) -> str:
    return f"(?:{entry}(?:, {entry})*)?"


def _lists_and_dicts(value: str) -> str:
    return rf"\[{_several(value)}\]|\{{{_several(f'{STRING}: {value}')}\}}"


# What is not UTF-8 stands in the text as surrogates, and is not plain.
ESCAPE = r"""\\(?:[\\'"nrt]|x[0-9a-f]{2}|u[0-9a-f]{4})"""
SINGLE = rf"'[^'\\\x00-\x1f\ud800-\udfff]*(?:{ESCAPE}[^'\\\x00-\x1f\ud800-\udfff]*)*'"
DOUBLE = rf'"[^"\\\x00-\x1f\ud800-\udfff]*(?:{ESCAPE}[^"\\\x00-\x1f\ud800-\udfff]*)*"'
STRING = f"(?:{SINGLE}|{DOUBLE})"
NAME = r"""(?:'[^'\\\x00-\x1f\ud800-\udfff]+'|"[^"\\\x00-\x1f\ud800-\udfff]+")"""
SCALAR = rf"(?:{STRING}|-?(?:0|[1-9][0-9]{{0,17}})(?:\.[0-9]+)?|True|False|None)"
NESTED = f"(?:{SCALAR}|{_lists_and_dicts(SCALAR)})"
VALUE = f"(?:{SCALAR}|{_lists_and_dicts(NESTED)})"
PATHS = rf"\[\[(?:{STRING}, )*(?P<category>{NAME})\](?:, \[{_several(STRING)}\])*\]"
FIELD = rf"""(?:'asin': (?P<item>{NAME})|'categories': {PATHS}
|(?!['"](?:asin|categories)['"]){STRING}: {VALUE})""".replace("\n", "")
PLAIN = re.compile(rf"\{{(?:{FIELD}(?:, (?!\}})|(?=\}})))+\}}")
"""A line with both values; of a key that is there twice, the last one counts, as in Python."""


def read_metadata_lines(text: bytes) -> tuple[pa.Table, list[BadRow]]:
    """Read each line's item and category, the last name of its first path; and the bad lines.

    >>> line = b"{'asin': '7', 'categories': [['Books', 'Sea'], ['Books', 'Old']]}"
    >>> read_metadata_lines(line)[0].to_pylist()
    [{'item': '7', 'category': 'Sea'}]
    """
    items, categories, bad = [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unknown escape such as \d is not an error
        lines = text.decode("utf-8", "surrogateescape").split("\n")
        for number, line in enumerate(lines, 1):
            plain = PLAIN.fullmatch(line)
            item, category = plain.groups() if plain is not None else (None, None)
            if item and category:
                items.append(item[1:-1])
                categories.append(category[1:-1])
            elif line.strip(string.whitespace):
                found = _read_line(line.encode("utf-8", "surrogateescape"))
                if isinstance(found, str):
                    bad.append(BadRow(number, found))
                else:
                    items.append(found[0])
                    categories.append(found[1])
    return pa.table([items, categories], SCHEMA), bad


def _read_line(line: bytes) -> tuple[str, str] | str:
    try:
        fields = ast.literal_eval(line.decode("utf-8").strip())
    except UnicodeDecodeError as error:
        return f"expected UTF-8, found byte 0x{line[error.start]:02x} at {error.start}"
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        said = str(error).split("\n", 1)[0][:80]
        return f"expected a Python literal, found {shown(line)} ({said})"
    if not isinstance(fields, dict):
        return f"expected a dict, found {shown(line)}"
    for key in ("asin", "categories"):
        if key not in fields:
            return f"expected the key {key!r}, found only {', '.join(map(repr, fields))}"
    category = _last_of_first_path(fields["categories"])
    if not _is_text(fields["asin"]):
        return f"'asin': expected a string, not empty, found {fields['asin']!r:.60}"
    if category is None:
        found = f"{fields['categories']!r:.60}"
        return f"'categories': expected a list of paths, each a list of names, found {found}"
    return fields["asin"], category


def _last_of_first_path(paths: Any) -> str | None:
    if not isinstance(paths, list) or not paths or not isinstance(paths[0], list):
        return None
    path = paths[0]
    return path[-1] if path and _is_text(path[-1]) else None


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or not value:
        return False
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


COLUMNS = BehaviourColumns("user_id", "item_id", "timestamp", item_features=("cat_id",))
NO_CATEGORY = "no_category"
REVIEW_SCHEMA = pa.schema(
    [("reviewerID", pa.string()), ("asin", pa.string()), ("unixReviewTime", pa.int64())]
)


@dataclass(frozen=True)
class AmazonReviews:
    """The reviews file as a log to read; see :class:`~merlin_sim.workflows.table_log.TableLog`."""

    path: Path

    @property
    def columns(self) -> BehaviourColumns:
        """The published names; categories come from the metadata file."""
        return COLUMNS

    @property
    def files(self) -> tuple[Path, ...]:
        """See TableLog."""
        return (self.path,)

    @cached_property
    def _blocks(self) -> list[LineBlock]:
        return line_blocks(self.path)

    def blocks(self) -> list[LineBlock]:
        """See TableLog."""
        return self._blocks

    def checked_with(self, fitted: FittedNumbers) -> AmazonReviews:
        """See TableLog; there are no numbers."""
        return self

    def size(self) -> int:
        """See TableLog."""
        return sum(block.size for block in self.blocks())

    def time_of(self, text: str, option: str) -> int | float:
        """See TableLog; the reviews' times are seconds."""
        for kind in (pa.int64(), pa.timestamp("s")):
            time, expected = time_from_text(text, kind)
            if time is not None:
                return time
        raise MerlinSimError(
            f"`{option}`: expected a number of seconds, or {expected}. Received: {text}."
        )

    def time_kind(self) -> str:
        """See TableLog."""
        return INTEGER

    def read(self, block: LineBlock) -> Generator[Piece, None, None]:
        """See TableLog."""
        for piece in read_pieces(block.texts(), partial(read_json_lines, schema=REVIEW_SCHEMA)):
            names = [COLUMNS.user, COLUMNS.item, COLUMNS.timestamp]
            yield replace(piece, table=piece.table.rename_columns(names))


def read_metadata(
    on_bad_rows: str, numbered: tuple[int, LineBlock]
) -> tuple[int, pa.Table, list[tuple[int, list[BadRow]]]]:
    """Read a block of the metadata file.

    Gives its number, its items and categories, and of each piece its lines and the bad ones.
    """
    number, block = numbered
    pieces = [*checked(block, read_pieces(block.texts(), read_metadata_lines), on_bad_rows)]
    table = pa.concat_tables([SCHEMA.empty_table(), *(piece.table for piece in pieces)])
    return number, table, [(piece.lines, piece.bad) for piece in pieces]


def read_categories(
    path: Path, scheduler: Scheduler, reporter: Reporter, on_bad_rows: str
) -> tuple[dict[str, tuple[pa.Array, pa.Array, str]], BadRows]:
    """Read the metadata file: each item's category, as ``PreprocessLog`` is given it."""
    blocks = line_blocks(path, 4 << 20)
    found: list[Any] = []
    size = sum(block.size for block in blocks)
    with reporter.phase("reading metadata", size) as report:
        read = partial(read_metadata, on_bad_rows)
        for number, table, bad in scheduler.run(read, list(enumerate(blocks))):
            found.append((number, table, bad))
            report(blocks[number].size, table.num_rows)
    found.sort(key=lambda block: block[0])
    bad = bad_rows_of((blocks[n], *of_piece) for n, _, pieces in found for of_piece in pieces)
    bad_rows = bad[0] if bad else BadRows(str(path))  # an empty gzip stream has no piece
    table = pa.concat_tables([table for _, table, _ in found])
    if not table.num_rows:
        left_out = f"\n{bad_rows.describe()}" if bad_rows.count else ""
        raise MerlinSimError(f"{path}: expected items with their categories, found none.{left_out}")
    known = (table[ITEM].combine_chunks(), table[CATEGORY].combine_chunks(), NO_CATEGORY)
    return {COLUMNS.item_features[0]: known}, bad_rows
