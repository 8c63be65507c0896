"""Events as a request brings them: texts of JSON."""

from __future__ import annotations

from typing import Any

from ..event_encoder import EncodedEvent, EventEncoder
from ..event_reader import parse_json
from ..limits import RequestError

EVENT = "event"
"""Name of the input."""


def encode_events(encoder: EventEncoder, texts: Any) -> list[EncodedEvent]:
    """Encode events from their JSON texts.

    Raises:
        RequestError: With the place of the first bad event, if there are several.
    """
    events = []
    for place, text in enumerate(texts.flat):
        try:
            fields = parse_json(text)
            if isinstance(fields, RequestError):
                raise fields
            events.append(encoder.encode(encoder.parse(fields)))
        except RequestError as error:
            where = f"event {place}: " if texts.size > 1 else ""
            raise RequestError(f"{where}{error}") from error
    return events
