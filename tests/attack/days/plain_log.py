"""A log's rows as a person reads them: csv and arrow alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from ..logs.raw_logs import read_plain
from .shop import DID, FIRST_DAY, ITEM, LABEL, TIME, USER, Shop

WORDS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
NUMBER = r"-?\d{1,6}(\.\d{1,4})?"
DAY = 86400.0


class InDoubt(Exception):
    """A row may be read in more than one way, or not at all."""


@dataclass(frozen=True)
class Event:
    """A row of a log."""

    user: str
    item: str
    time: int
    """Seconds, or days where times are dates."""
    seconds: float
    label: int
    did: str
    cells: dict[str, Any]
    """Column of a feature -> a number, a text, a list; None where it is missing."""
    mapping: str
    """Of a split by files: whose it is."""


def read_events(paths: Sequence[Path], shop: Shop, mappings: Sequence[str]) -> list[Event]:
    """Read files, one after the other.

    Raises:
        InDoubt: Where a file or a row cannot be read without a doubt.
    """
    events = []
    for path, mapping in zip(paths, mappings, strict=True):
        try:
            rows = list(read_plain(path))
        except Exception as error:
            raise InDoubt(str(error)) from error
        events += [_event(row, shop, mapping) for row in rows]
    return events


def _event(row: Any, shop: Shop, mapping: str) -> Event:
    if not isinstance(row, dict) or not set(shop.columns) <= set(row):
        raise InDoubt("columns")
    user, item = row[USER], row[ITEM]
    if not all(isinstance(key, str) and re.fullmatch(r"[a-z]\d{1,5}", key) for key in (user, item)):
        raise InDoubt(f"{user!r} or {item!r}")
    time, seconds = _time(row[TIME], shop.dates)
    label = _label(row[LABEL]) if shop.labelled else 1
    did = str(row[DID]) if shop.has_behaviours else ""
    if shop.has_behaviours and not re.fullmatch(r"[a-z]+", did):
        raise InDoubt(did)
    cells = {name: _cell(name, row[name]) for name in shop.stated if name != TIME}
    return Event(user, item, time, seconds, label, did, cells, mapping)


def _time(time: Any, dates: bool) -> tuple[int, float]:
    if dates:
        if not isinstance(time, str) or not re.fullmatch(r"2024-\d\d-\d\d", time):
            raise InDoubt(f"{time!r}")
        try:
            ordinal = date.fromisoformat(time).toordinal()
        except ValueError as error:
            raise InDoubt(time) from error
        return ordinal - FIRST_DAY.toordinal(), (ordinal - date(1970, 1, 1).toordinal()) * DAY
    if isinstance(time, str) and re.fullmatch(r"\d{1,9}", time):
        time = int(time)
    if type(time) is not int or not 0 <= time < 10**9:
        raise InDoubt(f"{time!r}")
    return time, float(time)


def _label(label: Any) -> int:
    if isinstance(label, str):
        label = WORDS.get(label.strip().lower())
    if label not in (0, 1):
        raise InDoubt(f"{label!r}")
    return int(label)


def _cell(name: str, cell: Any) -> Any:
    if name in ("genres", "look"):
        return _list(name, cell)
    if cell is None or cell == "":
        return None
    if isinstance(cell, str) and re.fullmatch(NUMBER, cell):
        cell = float(cell)
    if type(cell) not in (int, float) or not abs(cell) < 1e6:
        raise InDoubt(f"{cell!r}")
    return float(cell)


def _list(name: str, cell: Any) -> Any:
    parts = cell.split("|") if isinstance(cell, str) else cell
    if cell is None or parts in ([], [""]):
        if isinstance(cell, list) and name == "look":
            raise InDoubt("an empty vector")
        return None
    if not isinstance(parts, list):
        raise InDoubt(f"{cell!r}")
    kind = r"[a-z]" if name == "genres" else NUMBER
    if not all(isinstance(p, float) or re.fullmatch(kind, str(p)) for p in parts):
        raise InDoubt(f"{cell!r}")
    if name == "genres":
        return [str(part) for part in parts]
    vector = [float(part) for part in parts]
    if len(vector) != 2 or not all(abs(part) < 1e6 for part in vector):
        raise InDoubt(f"{cell!r}")
    return vector
