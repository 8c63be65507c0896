"""The Amazon metadata file: one Python literal a line, of which asin and categories are taken."""

from __future__ import annotations

import ast
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..logs.bad_rows import BadRow
from ..logs.json_lines import shown
from .literal_scanner import cut_spans, scan_lines

ITEM = "item"
CATEGORY = "category"
NEWLINE = 10
SCHEMA = pa.schema([(ITEM, pa.string()), (CATEGORY, pa.string())])


def read_metadata_lines(text: bytes, scan: bool = True) -> tuple[pa.Table, list[BadRow]]:
    """Read each line's item and category: the last name of the first category path.

    Plain lines are scanned; all others are parsed with :func:`ast.literal_eval`, which takes
    literals only and runs nothing.

    Args:
        text: Lines.
        scan: Whether plain lines are scanned; a small file is read before the scanner is compiled.

    Returns:
        The good rows, and the bad ones with their lines in ``text``.

    >>> line = b"{'asin': '7', 'categories': [['Books', 'Sea'], ['Books', 'Old']]}"
    >>> read_metadata_lines(line)[0].to_pylist()
    [{'item': '7', 'category': 'Sea'}]
    """
    letters = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(letters == NEWLINE)
    if not text.endswith(b"\n"):
        ends = np.append(ends, len(text))
    if not scan or not _is_utf8(text):
        return _read_slowly(text, ends, np.arange(len(ends)))
    plain, spans = scan_lines(letters, ends)
    lines = np.flatnonzero(plain)
    columns = [_strings(letters, spans[plain, first : first + 2]) for first in (0, 2)]
    fast = pa.table(columns, SCHEMA)
    rest, bad = _read_slowly(text, ends, np.flatnonzero(~plain))
    if rest.num_rows:
        # Back into the order of lines: of an item with two lines the first counts.
        wrong = {row.line - 1 for row in bad}
        slow_lines = [line for line in np.flatnonzero(~plain) if line not in wrong]
        slow_lines = [line for line in slow_lines if text[_start(ends, line) : ends[line]].strip()]
        order = np.argsort(np.concatenate([lines, slow_lines]), kind="stable")
        fast = pa.concat_tables([fast, rest]).take(pa.array(order))
    return fast, bad


def _start(ends: npt.NDArray[np.int64], line: int) -> int:
    return int(ends[line - 1]) + 1 if line else 0


def _strings(letters: npt.NDArray[np.uint8], spans: npt.NDArray[np.int64]) -> pa.Array:
    offsets, data = cut_spans(letters, spans)
    return pa.StringArray.from_buffers(len(spans), pa.py_buffer(offsets), pa.py_buffer(data))


def _is_utf8(text: bytes) -> bool:
    try:
        pa.array([text], pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def _read_slowly(
    text: bytes, ends: npt.NDArray[np.int64], lines: npt.NDArray[np.int64]
) -> tuple[pa.Table, list[BadRow]]:
    items, categories, bad = [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unknown escape such as \d is not an error
        for line in lines:
            literal = text[_start(ends, line) : ends[line]]
            if not literal.strip():
                continue
            found = _read_line(literal)
            if isinstance(found, str):
                bad.append(BadRow(int(line) + 1, found))
                continue
            items.append(found[0])
            categories.append(found[1])
    return pa.table({ITEM: items, CATEGORY: categories}, SCHEMA), bad


def _read_line(line: bytes) -> tuple[str, str] | str:
    """The item and its category, or what is wrong with the line."""
    try:
        fields = ast.literal_eval(line.decode("utf-8").strip())
    except UnicodeDecodeError as error:
        return f"expected UTF-8, found byte 0x{line[error.start]:02x} at {error.start}"
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        return f"expected a Python literal, found {shown(line)} ({_first_line(error)})"
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


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0][:80]
