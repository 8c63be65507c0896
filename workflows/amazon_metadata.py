"""The Amazon metadata file: one Python literal a line, of which asin and categories are taken."""

from __future__ import annotations

import ast
import warnings
from typing import Any

import pyarrow as pa

from .bad_rows import BadRow
from .json_lines import shown

ITEM = "item"
CATEGORY = "category"
SCHEMA = pa.schema([(ITEM, pa.string()), (CATEGORY, pa.string())])


def read_metadata_lines(text: bytes) -> tuple[pa.Table, list[BadRow]]:
    """Read each line's item and category: the last name of the first category path.

    Lines are parsed with :func:`ast.literal_eval`, which takes literals only and runs nothing.

    Returns:
        The good rows, and the bad ones with their lines in ``text``.

    >>> line = b"{'asin': '7', 'categories': [['Books', 'Sea'], ['Books', 'Old']]}"
    >>> read_metadata_lines(line)[0].to_pylist()
    [{'item': '7', 'category': 'Sea'}]
    """
    items, categories, bad = [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unknown escape such as \d is not an error
        for number, line in enumerate(text.split(b"\n"), start=1):
            if not line.strip():
                continue
            found = _read_line(line)
            if isinstance(found, str):
                bad.append(BadRow(number, found))
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
