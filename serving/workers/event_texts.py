"""Events as a request brings them: texts of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..events.csv_cells import parse_json
from ..events.event_encoder import EncodedEvent
from ..events.row_encoder import Encoder
from ..limits import RequestError, UnavailableError

Found = TypeVar("Found")


def event_text(event: Any) -> bytes:
    """Write an event as a request has it."""
    return json.dumps(event, ensure_ascii=False).encode()


def read_events(
    requests: Sequence[Any], encode_all: Callable[[Sequence[Any]], Sequence[Found | Exception]]
) -> list[list[Found | Exception]]:
    """Encode the events of requests together, each from its JSON text.

    Args:
        requests: Of each request any array of texts.
        encode_all: Makes of events' fields what is wanted, or what is wrong with an event.

    Returns:
        Of each request its events, or what is wrong in the place of one.
    """
    fields = [parse_json(text) for texts in requests for text in texts.flat]
    sound = [place for place, one in enumerate(fields) if not isinstance(one, RequestError)]
    found: list[Any] = list(fields)
    for place, one in zip(sound, encode_all([fields[place] for place in sound]), strict=True):
        found[place] = one
    told = []
    for texts in requests:
        told.append(found[: texts.size])
        found = found[texts.size :]
    return told


def refuse_first(found: Sequence[Found | Exception]) -> list[Found]:
    """Return what was found where nothing is wrong.

    Raises:
        Exception: The first that stands among it, with its place, from 1, if there are several.
    """
    sound: list[Found] = []
    for place, one in enumerate(found, start=1):
        if isinstance(one, RequestError | UnavailableError) and len(found) > 1:
            raise type(one)(f"event {place}: {one}") from one
        if isinstance(one, Exception):
            raise one
        sound.append(one)
    return sound


def encode_events(encoder: Encoder, texts: Any) -> list[EncodedEvent]:
    """Encode events from their JSON texts.

    Raises:
        RequestError: With the place of the first bad event, from 1, if there are several.
    """

    def encode(fields: Any) -> EncodedEvent | Exception:
        try:
            return encoder.encode(encoder.parse(fields))
        except RequestError as error:
            return error

    (found,) = read_events([texts], lambda events: [encode(fields) for fields in events])
    return refuse_first(found)
