"""What a request asks: a user, how many items, and facts of the user. Plain data in, checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...histories.interaction import InteractionError, key_text
from ...serving.events.csv_cells import parse_json
from ...serving.limits import RequestError

USER, TOP, FACTS = "user", "top", "facts"
DEFAULT_TOP = 20
LONGEST = 1 << 16
"""Bytes of a request."""


class RecommendRequest(NamedTuple):
    """A request whose form is right."""

    user: Any
    """The raw key."""
    top: int
    facts: dict[str, Any]


def read_request(text: bytes | str, most: int) -> RecommendRequest:
    """Read a request.

    >>> read_request('{"user": "A1", "facts": {"age": 17}}', 500)
    RecommendRequest(user='A1', top=20, facts={'age': 17})

    Args:
        text: JSON.
        most: Items that are answered: as many as are retrieved, for which the index was made.

    Raises:
        RequestError: With the first thing that is wrong.
    """
    check_length(len(text))
    fields = parse_json(text)
    if isinstance(fields, RequestError):
        raise fields
    if not isinstance(fields, Mapping):
        raise RequestError(f"expected an object, received {fields!r:.60}")
    unknown = [name for name in fields if name not in (USER, TOP, FACTS)]
    if unknown:
        raise RequestError(f"expected only {USER}, {TOP}, {FACTS}, received {unknown[0]!r:.60}")
    if USER not in fields:
        raise RequestError(
            f"expected the key {USER!r}, received only: {', '.join(map(repr, fields)) or 'none'}"
        )
    try:
        key_text(fields[USER], USER)
        json.dumps(fields, ensure_ascii=False).encode()
    except InteractionError as error:
        raise RequestError(str(error)) from error
    except UnicodeEncodeError:  # half of a pair of surrogates
        raise RequestError(f"{FACTS}: expected characters of Unicode") from None
    return RecommendRequest(fields[USER], _top(fields, most), _facts(fields.get(FACTS, {})))


def check_length(length: int) -> None:
    """Refuse a request of more bytes than any needs."""
    if length > LONGEST:
        raise RequestError(f"expected a request of at most {LONGEST:,} bytes, received {length:,}")


def _top(fields: Mapping[str, Any], most: int) -> int:
    given = fields.get(TOP, min(DEFAULT_TOP, most))
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= most:
        raise RequestError(
            f"{TOP}: expected a whole number from 1 to {most:,}, as many items as are retrieved "
            f"(`--candidates`), received {given!r:.60}"
        )
    return int(given)


def _facts(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise RequestError(f"{FACTS}: expected an object, received {given!r:.60}")
    for name, value in given.items():
        values = value if isinstance(value, list) else [value]
        if not all(one is None or isinstance(one, str | int | float) for one in values):
            raise RequestError(
                f"{FACTS}.{name}: expected a text, a number, a truth value or a list of them, "
                f"received {value!r:.60}"
            )
    return dict(given)
