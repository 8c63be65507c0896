"""A raw event: a user, the user's history, and the candidates to score. Plain data in, checked.

    {"user_id": "A1", "history": ["B7", "B3"], "candidates": ["B9", {"item_id": "B2"}]}

The user's keys stand under the names of the user's columns. An item is its key, or an object with
the keys of its features by the names of their domains; what is not given is looked up. A history
is oldest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..limits import Limits, RequestError
from ..servables.served_columns import ServedColumns
from .csv_cells import number_of
from .event_times import EventTimes

CANDIDATES = "candidates"
HISTORY = "history"
Item = tuple[Any, ...]
"""The raw key of each item feature, the item's first; ``NOT_GIVEN`` where it is to be looked up."""
NOT_GIVEN = object()
MOST_LISTED = 10
"""How many problems with the keys of an event a message lists."""


@dataclass(frozen=True)
class Event:
    """One event, its form checked, its keys still raw."""

    users: dict[str, Any]
    """Column -> the user's key."""
    candidates: list[Item]
    history: list[Item]
    intervals: list[float] | None
    """Time intervals beside the history, where the model reads them."""
    beside_user: Mapping[str, Any] = field(default_factory=dict)
    """What else the model reads of the user and of the moment, by field, as it was given."""
    given: Sequence[Mapping[str, Any]] = ()
    """The same of each candidate; what is not given is looked up."""


NO_FIELDS: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


def parse_event(
    fields: Any,
    columns: ServedColumns,
    limits: Limits,
    beside: tuple[tuple[str, ...], tuple[str, ...]] = NO_FIELDS,
    times: EventTimes | None = None,
) -> Event:
    """Check the form of an event.

    Args:
        fields: The event.
        columns: What the model reads.
        limits: What is refused.
        beside: The fields of an event beside its keys and lists, and those of an item.
        times: Makes time intervals of times; None where an event has to bring the intervals.

    Raises:
        RequestError: With all keys that are missing or unknown, else the first thing that is wrong.
    """
    if not isinstance(fields, Mapping):
        raise RequestError(f"expected an object, received {fields!r:.60}")
    users = {column.name: column.name for column in columns.users}
    intervals = (columns.intervals.name,) if columns.intervals else ()
    of_user, of_item = beside
    domains = tuple(column.domain for column in columns.targets)
    needed = times.needed(fields) if times else intervals
    for name, check in ((CANDIDATES, limits.check_candidates), (HISTORY, limits.check_history)):
        if isinstance(items := fields.get(name), list):
            check(len(items))
    names = dict.fromkeys((*users, *of_user, HISTORY, CANDIDATES, *needed))
    refuse_all([*missing_keys(fields, names), *_wrong_keys(fields, domains, of_item)])
    candidates = _list(fields, CANDIDATES)
    history = _list(fields, HISTORY)
    if times is not None:
        fields = times.with_intervals(fields, len(history))
    return Event(
        {name: fields[name] for name in users},
        [_item(item, domains) for item in candidates],
        [_item(item, domains) for item in history],
        _intervals(fields, intervals[0], len(history)) if intervals else None,
        {name: fields[name] for name in of_user},
        [_given(item, of_item) for item in candidates] if of_item else (),
    )


def missing_keys(fields: Mapping[str, Any], names: Iterable[str]) -> Iterator[str]:
    """Say which keys an object lacks; nothing where it has them all."""
    missing = [name for name in names if name not in fields]
    if missing:
        received = ", ".join(map(repr, fields)) or "none"
        keys = "the key" if len(missing) == 1 else "the keys"
        yield f"expected {keys} {', '.join(map(repr, missing))}, received only: {received:.200}"


def refuse_all(problems: Sequence[str]) -> None:
    """Refuse an event that has problems.

    Raises:
        RequestError: With the first :data:`MOST_LISTED` problems, and how many more there are.
    """
    if problems:
        more = len(problems) - MOST_LISTED
        listed = [*problems[:MOST_LISTED], *([f"and {more:,} more"] if more > 0 else [])]
        raise RequestError("; ".join(listed))


def _wrong_keys(
    fields: Mapping[str, Any], domains: tuple[str, ...], beside: tuple[str, ...]
) -> Iterator[str]:
    """Say which keys the objects of items lack, and which are unknown."""
    known = (*domains, *beside)
    for name in (HISTORY, CANDIDATES):
        items = fields.get(name)
        for place, item in enumerate(items if isinstance(items, list) else ()):
            if not isinstance(item, Mapping):
                continue
            where = f"{name}[{place}]"
            if domains[0] not in item:
                received = ", ".join(map(repr, item)) or "none"
                yield f"{where}: expected the key {domains[0]!r}, received: {received:.200}"
            unknown = ", ".join(repr(key) for key in item if key not in known)
            if unknown:
                yield f"{where}: expected only {', '.join(known)}, received {unknown:.200}"


def _given(item: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        return {}
    return {name: item[name] for name in names if name in item}


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
