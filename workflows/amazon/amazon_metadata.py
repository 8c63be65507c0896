"""The Amazon metadata file: one Python literal a line, of which asin and categories are taken.

Nearly all lines are dicts as ``repr`` writes them, nested no deeper than two. One regular
expression knows those and finds both values; any other line is parsed with
:func:`ast.literal_eval`, which takes literals only, runs nothing, and is some 20 times slower. What
the expression accepts, literal_eval reads in the same way; the tests compare the two.
"""

from __future__ import annotations

import ast
import re
import string
import warnings
from typing import Any

import pyarrow as pa

from ..logs.bad_rows import BadRow
from ..logs.json_lines import shown

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
    """Read each line's item and category: the last name of the first category path.

    Returns:
        The good rows, and the bad ones with their lines in ``text``.

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
