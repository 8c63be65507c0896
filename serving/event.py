"""A raw event: a user, the user's history, and the candidates to score. Plain data in, checked.

    {"user_id": "A1", "history": ["B7", "B3"], "candidates": ["B9", {"item_id": "B2"}]}

The user's keys stand under the names of the user's columns. An item is its key, or an object with
the keys of its features by the names of their domains; what is not given is looked up. A history
is oldest first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from ..foundation.requests import RequestError, missing_keys, refuse_all
from ..schemas.dtypes import LARGEST_NUMBER
from ..workflows.raw_values import can_be_number
from ..workflows.times import EXPECTED_DATE, parsed_seconds, seconds_of
from .limits import Limits
from .servable import ServedColumns

CANDIDATES = "candidates"
HISTORY = "history"
Item = tuple[Any, ...]
"""The raw key of each item feature, the item's first; ``NOT_GIVEN`` where it is to be looked up."""
NOT_GIVEN = object()


@dataclass(frozen=True)
class StoredSummary:
    """Summary that a model made of a user's history, but for what came since."""

    so_far: np.ndarray[Any, Any]
    """[dim], float32; zeros where nothing is summed up yet."""
    keep: Callable[[np.ndarray[Any, Any]], None]
    """Called with the summary of the whole."""


class StoredHistory(list[Any]):
    """The newest items of a history of which a store keeps a summary; no request can bring one."""

    def __init__(self, newest: list[Any], summary: StoredSummary, since: list[Any]) -> None:
        """Keep the summary, the items that are not in it, and the newest."""
        super().__init__(newest)
        self.summary, self.since = summary, since


@dataclass(frozen=True)
class Event:
    """One event, its form checked, its keys still raw."""

    users: dict[str, Any]
    """Column -> the user's key."""
    candidates: list[Item]
    history: list[Item]
    intervals: list[float] | None
    """Time intervals of the history, where the model reads them."""
    user_values: Mapping[str, Any] = field(default_factory=dict)
    """What else the model reads of the user and of the event, by field, as it was given."""
    given: Sequence[Mapping[str, Any]] = ()
    """The same of each candidate; what is not given is looked up."""
    seconds: float | None = None
    """The event's own time since 1970, where the model reads its day."""
    stored: StoredSummary | None = None
    """What a store keeps of the whole history, where the model reads a summary of it."""
    since: Sequence[Item] = ()
    """What is not in it yet."""


def parse_event(
    fields: Any,
    columns: ServedColumns,
    limits: Limits,
    more_fields: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
    times: EventTimes | None = None,
) -> Event:
    """Check the form of an event.

    Args:
        fields: The event.
        columns: What the model reads.
        limits: What is refused.
        more_fields: The fields of an event besides its keys and lists, and those of an item.
        times: Makes time intervals of times; None where an event has to bring the intervals.

    Raises:
        RequestError: With all keys that are missing or unknown, else the first thing that is wrong.
    """
    if not isinstance(fields, Mapping):
        raise RequestError(f"expected an object, received {fields!r:.60}")
    users = {column.name: column.name for column in columns.event_keys}
    intervals = (columns.intervals.name,) if columns.intervals else ()
    of_user, of_item = more_fields
    domains = tuple(column.domain for column in columns.targets)
    needed = times.needed(fields) if times else intervals
    for name, check in ((CANDIDATES, limits.check_candidates), (HISTORY, limits.check_history)):
        if isinstance(items := fields.get(name), list):
            check(len(items))
    names = dict.fromkeys((*users, *of_user, HISTORY, CANDIDATES, *needed))
    refuse_all([*missing_keys(fields, names), *_wrong_keys(fields, domains, of_item)])
    candidates = _list(fields, CANDIDATES)
    history = _list(fields, HISTORY)
    stored, since = None, []
    if isinstance(history, StoredHistory):
        stored, since = history.summary, history.since
        refuse_all([*_wrong_keys({HISTORY: since}, domains, of_item)])
    if times is not None:
        fields = times.with_intervals(fields, len(history))
    return Event(
        {name: fields[name] for name in users},
        [_item(item, domains) for item in candidates],
        [_item(item, domains) for item in history],
        _intervals(fields, intervals[0], len(history)) if intervals else None,
        {name: fields[name] for name in of_user},
        [_given(item, of_item) for item in candidates] if of_item else (),
        stored=stored,
        since=[_item(item, domains) for item in since],
    )


def _wrong_keys(
    fields: Mapping[str, Any], domains: tuple[str, ...], more_fields: tuple[str, ...]
) -> Iterator[str]:
    """Say which keys the objects of items lack, and which are unknown."""
    known = (*domains, *more_fields)
    for name in (HISTORY, CANDIDATES):
        items = fields.get(name)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if not isinstance(item, Mapping):
                continue
            where = f"{name}[{index}]"
            if domains[0] not in item:
                received = ", ".join(map(repr, item)) or "none"
                yield f"{where}: expected the key {domains[0]!r}, received: {received:.200}"
            unknown = ", ".join(repr(key) for key in item if key not in known)
            if unknown:
                yield f"{where}: expected only {', '.join(known)}, received {unknown:.200}"


def _given(item: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        return {}
    return {name: item[name] for name in names if item.get(name) is not None}


def _list(fields: Mapping[str, Any], name: str) -> list[Any]:
    value = fields[name]
    if value is None:
        return []
    if not isinstance(value, list):
        raise RequestError(f"{name}: expected a list, received {value!r:.60}")
    return value


def _item(item: Any, domains: tuple[str, ...]) -> Item:
    if not isinstance(item, Mapping):
        return (item, *[NOT_GIVEN] * (len(domains) - 1))
    given = [item.get(name) for name in domains[1:]]
    return (item[domains[0]], *[NOT_GIVEN if key is None else key for key in given])


def _intervals(fields: Mapping[str, Any], name: str, length: int) -> list[float]:
    values = _list(fields, name)
    if len(values) != length:
        raise RequestError(
            f"{name}: expected {length} numbers, one for each position of the history, "
            f"received {len(values)}"
        )
    return [number_of(value, f"{name}[{i}]") for i, value in enumerate(values)]


HISTORY_TIMES = "history_times"
"""The key of the times of a history's interactions, as the log has them."""


@dataclass(frozen=True)
class EventTimes:
    """Makes time intervals of times, as the workflow makes them of the log's."""

    timestamp: str
    """The log's column of times; the key of the event's own time."""
    interval: str
    """The model's column of time intervals; the key of an event that brings them ready-made."""
    unit: str | None
    """What times that are numbers count, as ``s`` or ``ms``; None for seconds."""
    seconds: float
    """The unit of the intervals."""

    def needed(self, given: Any) -> tuple[str, ...]:
        """Name the keys that an event needs, by those that it has."""
        return (self.interval,) if self.interval in given else (HISTORY_TIMES, self.timestamp)

    def with_intervals(self, fields: Mapping[str, Any], length: int) -> Mapping[str, Any]:
        """Return an event whose times have become intervals."""
        if HISTORY_TIMES not in fields:
            return fields
        if self.interval in fields:
            raise RequestError(
                f"expected either {HISTORY_TIMES!r} or {self.interval!r}, received both"
            )
        then = fields[HISTORY_TIMES]
        if not isinstance(then, list):
            raise RequestError(f"{HISTORY_TIMES}: expected a list, received {then!r:.60}")
        if len(then) != length:
            raise RequestError(
                f"{HISTORY_TIMES}: expected {length} times, one for each position of the history, "
                f"received {len(then)}"
            )
        (now,) = _seconds([fields[self.timestamp]], [self.timestamp], self.unit)
        where = [f"{HISTORY_TIMES}[{i}]" for i in range(len(then))]
        since = now - _seconds(then, where, self.unit)
        late = np.flatnonzero(since < 0)
        if len(late):
            raise RequestError(
                f"{where[late[0]]}: expected a time not after {self.timestamp!r} "
                f"({fields[self.timestamp]!s:.40}), received {then[late[0]]!s:.40}"
            )
        return {**fields, self.interval: (since / self.seconds).tolist()}


def own_seconds(fields: Mapping[str, Any], timestamp: str, unit: str | None) -> float:
    """Read an event's own time in seconds since 1970; one that brings none is of now."""
    given = fields.get(timestamp)
    return time.time() if given is None else float(_seconds([given], [timestamp], unit)[0])


def _seconds(values: list[Any], where: list[str], unit: str | None) -> np.ndarray[Any, Any]:
    """Read times of any form, each by itself where they are of several."""
    for value, location in zip(values, where, strict=True):
        if not isinstance(value, str | int | float | date) or isinstance(value, bool):
            raise RequestError(f"{location}: expected {EXPECTED_DATE}, received {value!r:.60}")
    raw = _arrow(values)
    if can_be_number(raw.type):
        seconds, bad = parsed_seconds(raw, unit)
    else:
        seconds, bad = seconds_of(raw, unit)
    bad = bad | np.asarray(seconds.is_null())
    if bad.any():
        first = int(np.argmax(bad))
        raise RequestError(
            f"{where[first]}: expected {EXPECTED_DATE}, received {values[first]!r:.60}"
        )
    return np.asarray(seconds, np.float64)


def _arrow(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.string() if not values else None)
    except (pa.ArrowException, OverflowError, UnicodeError):
        # Of several types, or beyond them: as text, which separates a number from a date.
        return pa.array([str(value).encode("utf-8", "replace").decode() for value in values])


NOT_UTF8 = "expected UTF-8, found byte"


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
    """A number that a model can take: nothing else, not infinite, not beyond float32."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or value != value or value in (float("inf"), -float("inf")):
        raise RequestError(f"{where}: expected a number, received {value!r:.60}")
    if not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
        raise RequestError(f"{where}: expected a number of 32 bits, received {value!r:.60}")
    return float(value)


def not_utf8(byte: int) -> str:
    """Say that a text has a byte that is no UTF-8."""
    return f"{NOT_UTF8} 0x{byte:02x}"


def parse_json(text: bytes | str) -> Any:
    """Read one JSON value; a RequestError, returned, says why it is none."""
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
