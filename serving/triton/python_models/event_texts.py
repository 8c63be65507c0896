"""Events as a request brings them: texts of JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...events.csv_cells import parse_json
from ...events.event_encoder import EncodedEvent
from ...events.row_encoder import Encoder
from ...limits import RequestError

EVENT = "event"
"""Name of the input."""
VERSION = "version"
"""Name of the output that says which version of a registry answered an event."""
Encoded = TypeVar("Encoded")
SCORES, UNSEEN_USER, UNSEEN_CANDIDATES = "scores", "unseen_user", "unseen_candidates"
"""Names of the outputs."""


def read_events(texts: Any, encode: Callable[[Any], Encoded]) -> list[Encoded]:
    """Encode events from their JSON texts.

    Args:
        texts: Any array of them.
        encode: Makes of an event's fields what is wanted.

    Raises:
        RequestError: With the place of the first bad event, from 1, if there are several.
    """
    events = []
    for place, text in enumerate(texts.flat, start=1):
        try:
            fields = parse_json(text)
            if isinstance(fields, RequestError):
                raise fields
            events.append(encode(fields))
        except RequestError as error:
            where = f"event {place}: " if texts.size > 1 else ""
            raise RequestError(f"{where}{error}") from error
    return events


def encode_events(encoder: Encoder, texts: Any) -> list[EncodedEvent]:
    """Encode events from their JSON texts; see :func:`read_events`."""
    return read_events(texts, lambda fields: encoder.encode(encoder.parse(fields)))
