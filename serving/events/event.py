"""A raw event: a user, the user's history, and the candidates to score. Plain data in, checked.

    {"user_id": "A1", "history": ["B7", "B3"], "candidates": ["B9", {"item_id": "B2"}]}

The user's keys stand under the names of the user's columns. An item is its key, or an object with
the keys of its features by the names of their domains; what is not given is looked up. A history
is oldest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..limits import Limits, RequestError
from ..servables.served_columns import ServedColumns
from .csv_cells import number_of

CANDIDATES = "candidates"
HISTORY = "history"
Item = tuple[Any, ...]
"""The raw key of each item feature, the item's first; ``NOT_GIVEN`` where it is to be looked up."""
NOT_GIVEN = object()


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
) -> Event:
    """Check the form of an event.

    Args:
        fields: The event.
        columns: What the model reads.
        limits: What is refused.
        beside: The fields of an event beside its keys and lists, and those of an item.

    Raises:
        RequestError: With the first thing that is wrong.
    """
    if not isinstance(fields, Mapping):
        raise RequestError(f"expected an object, received {fields!r:.60}")
    users = {column.name: column.name for column in columns.users}
    intervals = (columns.intervals.name,) if columns.intervals else ()
    of_user, of_item = beside
    for name in (*users, *of_user, HISTORY, CANDIDATES, *intervals):
        if name not in fields:
            received = ", ".join(map(repr, fields)) or "none"
            raise RequestError(f"expected the key {name!r}, received only: {received:.200}")
    candidates = _list(fields, CANDIDATES)
    limits.check_candidates(len(candidates))
    history = _list(fields, HISTORY)
    limits.check_history(len(history))
    domains = tuple(column.domain for column in columns.targets)
    return Event(
        {name: fields[name] for name in users},
        [_item(item, domains, f"candidates[{i}]", of_item) for i, item in enumerate(candidates)],
        [_item(item, domains, f"history[{i}]", of_item) for i, item in enumerate(history)],
        _intervals(fields, intervals[0], len(history)) if intervals else None,
        {name: fields[name] for name in of_user},
        [_given(item, of_item) for item in candidates] if of_item else (),
    )


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


def _item(item: Any, domains: tuple[str, ...], where: str, beside: tuple[str, ...] = ()) -> Item:
    if not isinstance(item, Mapping):
        return (item, *[NOT_GIVEN] * (len(domains) - 1))
    if domains[0] not in item:
        received = ", ".join(map(repr, item)) or "none"
        raise RequestError(f"{where}: expected the key {domains[0]!r}, received: {received:.200}")
    unknown = [name for name in item if name not in domains and name not in beside]
    if unknown:
        raise RequestError(
            f"{where}: expected only {', '.join((*domains, *beside))}, received {unknown[0]!r:.60}"
        )
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
