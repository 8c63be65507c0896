"""Events as texts of JSON: those that requests bring, and an example of one that works."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..foundation.requests import RequestError
from .encoder import EncodedEvent, Encoder, EventEncoder, RowEncoder
from .event import CANDIDATES, HISTORY, HISTORY_TIMES, parse_json
from .limits import UnavailableError
from .lookups import TRIED
from .numbers import A_DATE, PlainNumbers

Found = TypeVar("Found")


def event_text(event: Any) -> bytes:
    """Write an event as a request has it."""
    return json.dumps(event, ensure_ascii=False).encode()


def read_events(
    requests: Sequence[Any], encode_all: Callable[[Sequence[Any]], Sequence[Found | Exception]]
) -> list[list[Found | Exception]]:
    """Encode the events of requests, arrays of JSON texts, together.

    Returns of each request its events, or the error of one.
    """
    fields = [parse_json(text) for texts in requests for text in texts.flat]
    sound = [index for index, one in enumerate(fields) if not isinstance(one, RequestError)]
    found: list[Any] = list(fields)
    for index, one in zip(sound, encode_all([fields[index] for index in sound]), strict=True):
        found[index] = one
    by_request = []
    for texts in requests:
        by_request.append(found[: texts.size])
        found = found[texts.size :]
    return by_request


def refuse_first(found: Sequence[Found | Exception]) -> list[Found]:
    """Return what was found, or raise the first error in it, with its number among several."""
    sound: list[Found] = []
    for number, one in enumerate(found, start=1):
        if isinstance(one, RequestError | UnavailableError) and len(found) > 1:
            raise type(one)(f"event {number}: {one}") from one
        if isinstance(one, Exception):
            raise one
        sound.append(one)
    return sound


def encode_events(encoder: Encoder, texts: Any) -> list[EncodedEvent]:
    """Encode events from their JSON texts; the first bad one refuses all."""

    def encode(fields: Any) -> EncodedEvent | Exception:
        try:
            return encoder.encode(encoder.parse(fields))
        except RequestError as error:
            return error

    (found,) = read_events([texts], lambda events: [encode(fields) for fields in events])
    return refuse_first(found)


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
    named = zip(columns.event_keys, encoder.users, strict=True)
    event = {column.name: lookup.example(0) for column, lookup in named}
    event |= encoder.numbers.user_examples()
    event[HISTORY] = [_item(encoder, number) for number in range(positions)]
    if encoder.times is not None:
        event[HISTORY_TIMES] = [f"2024-05-{day + 1:02d} 09:00:00" for day in range(positions)]
        event.setdefault(encoder.times.timestamp, A_DATE)
    elif columns.intervals is not None:
        event[columns.intervals.name] = [float(positions - number) for number in range(positions)]
    for name in encoder.time_fields:
        event.setdefault(name, A_DATE)
    event[CANDIDATES] = _candidates(encoder, positions)
    return event


def _candidates(encoder: EventEncoder, number: int) -> list[Any]:
    """One candidate with every field it may have, and one with those it must have."""
    given = encoder.numbers.item_examples()
    features = {lookup.domain: lookup.example(0) for lookup in encoder.items[1:]}
    key = encoder.items[0].domain
    first, second = (encoder.items[0].example(number + more) for more in (0, 1))
    whole = {key: first, **features, **given}
    has_to_be = bool(given) and isinstance(encoder.numbers, PlainNumbers)
    return [whole, {**whole, key: second} if has_to_be else _item(encoder, number + 1)]


def _item(encoder: EventEncoder, number: int) -> Any:
    """An item as its key, or with the features that the servable does not know of it."""
    first, *others = encoder.items
    unknown = [lookup for lookup in others if lookup.domain not in first.features]
    if not unknown:
        return first.example(number)
    return {first.domain: first.example(number), **{of.domain: of.example(0) for of in unknown}}
