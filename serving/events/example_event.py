"""An event that works for a servable, made of the keys of its own vocabularies."""

from __future__ import annotations

from typing import Any

from .event import CANDIDATES, HISTORY
from .event_encoder import EventEncoder
from .event_numbers import A_DATE, TRIED, PlainNumbers
from .event_times import HISTORY_TIMES
from .row_encoder import Encoder, RowEncoder

MOST_POSITIONS = 3
"""Positions of the example's history."""


def example_event(encoder: Encoder) -> dict[str, Any]:
    """Make an event that the model scores: every key that it needs, and keys that it knows."""
    if isinstance(encoder, RowEncoder):
        return {
            name: TRIED[0] if lookup is None else lookup.example(0)
            for name, lookup in encoder.lookups.items()
        }
    columns = encoder.columns
    positions = min(MOST_POSITIONS, columns.longest)
    named = zip(columns.users, encoder.users, strict=True)
    event = {column.name: lookup.example(0) for column, lookup in named}
    event |= encoder.numbers.user_examples()
    event[HISTORY] = [_item(encoder, place) for place in range(positions)]
    if encoder.times is not None:
        event[HISTORY_TIMES] = [f"2024-05-{day + 1:02d} 09:00:00" for day in range(positions)]
        event.setdefault(encoder.times.timestamp, A_DATE)
    elif columns.intervals is not None:
        event[columns.intervals.name] = [float(positions - place) for place in range(positions)]
    event[CANDIDATES] = _candidates(encoder, positions)
    return event


def _candidates(encoder: EventEncoder, place: int) -> list[Any]:
    """One candidate with all that may be said of it, and one with what has to be."""
    given = encoder.numbers.item_examples()
    features = {lookup.domain: lookup.example(0) for lookup in encoder.items[1:]}
    key = encoder.items[0].domain
    first, second = (encoder.items[0].example(place + more) for more in (0, 1))
    whole = {key: first, **features, **given}
    has_to_be = bool(given) and isinstance(encoder.numbers, PlainNumbers)
    return [whole, {**whole, key: second} if has_to_be else _item(encoder, place + 1)]


def _item(encoder: EventEncoder, place: int) -> Any:
    """An item as its key, or with the features that the servable does not know of it."""
    first, *others = encoder.items
    unknown = [lookup for lookup in others if lookup.domain not in first.features]
    if not unknown:
        return first.example(place)
    return {first.domain: first.example(place), **{of.domain: of.example(0) for of in unknown}}
