"""Cells of CSV and texts of JSON as keys, lists and numbers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..limits import RequestError

NOT_UTF8 = "expected UTF-8, found byte"
LARGEST_NUMBER = float(np.finfo(np.float32).max)
"""Models take numbers of 32 bits."""


def csv_key(cell: str, where: str, is_text: bool) -> Any:
    """A key in CSV: text as it is, a whole number where the vocabulary has numbers.

    >>> csv_key("7", "user", is_text=False), csv_key("7", "user", is_text=True)
    (7, '7')
    """
    if not cell:
        return None
    if is_text:
        return cell
    try:
        return int(cell)
    except ValueError:
        raise RequestError(f"{where}: expected a whole number, received {cell!r:.60}") from None


def csv_list(cell: str, where: str, is_text: bool) -> list[Any]:
    """A list in CSV: JSON, or keys separated by ``|``.

    >>> csv_list("a|b", "history", True), csv_list('["a", {"item": "b"}]', "history", True)
    (['a', 'b'], ['a', {'item': 'b'}])
    """
    if cell.startswith("["):
        try:
            return list(json.loads(cell))
        except (ValueError, RecursionError) as error:
            raise RequestError(f"{where}: expected a JSON list: {_json_problem(error)}") from None
    parts = cell.split("|") if cell else []
    return [csv_key(part, f"{where}[{i}]", is_text) for i, part in enumerate(parts)]


def csv_numbers(cell: str, where: str) -> list[float]:
    """Numbers in CSV: a JSON list, or separated by ``|``.

    >>> csv_numbers("1.5|2", "hours"), csv_numbers("[1.5, 2]", "hours")
    ([1.5, 2.0], [1.5, 2])
    """
    if cell.startswith("["):
        return csv_list(cell, where, is_text=False)
    try:
        return [float(part) for part in cell.split("|")] if cell else []
    except ValueError as error:
        raise RequestError(f"{where}: expected numbers: {error}") from None


def number_of(value: Any, where: str) -> float:
    """A number that a model can take: nothing else, not infinite, not beyond float32.

    >>> number_of(7, "hours")
    7.0
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or value != value or value in (float("inf"), -float("inf")):
        raise RequestError(f"{where}: expected a number, received {value!r:.60}")
    if not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
        raise RequestError(f"{where}: expected a number of 32 bits, received {value!r:.60}")
    return float(value)


def not_utf8(byte: int) -> str:
    """Say that a text has a byte that is no UTF-8.

    >>> not_utf8(0xe9)
    'expected UTF-8, found byte 0xe9'
    """
    return f"{NOT_UTF8} 0x{byte:02x}"


def parse_json(text: bytes | str) -> Any:
    """Read one JSON value; a RequestError, returned, says why it is none.

    >>> parse_json(b'{"a": 1}')
    {'a': 1}
    """
    try:
        return json.loads(text)
    except UnicodeDecodeError as error:
        return RequestError(not_utf8(error.object[error.start]))
    except (ValueError, RecursionError) as error:
        return RequestError(f"expected one JSON object: {_json_problem(error)}")


def _json_problem(error: Exception) -> str:
    """What is wrong with a text in one line: its own lines are not the file's."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, at character {error.pos + 1}"
    return str(error)
