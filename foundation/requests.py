"""Requests that cannot be answered, and checks of plain data that several kinds of them share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .exceptions import MerlinSimError


class RequestError(MerlinSimError):
    """A request that cannot be answered; the message says what was expected and what came."""


MOST_LISTED = 10
"""How many problems with the keys of a request a message lists."""


def check_fields(
    fields: Any, needed: Sequence[str], further: Sequence[str] = ()
) -> Mapping[str, Any]:
    """Refuse what is no object, lacks a key, or has one that is unknown.

    Raises:
        RequestError: With what was expected.
    """
    if not isinstance(fields, Mapping):
        raise RequestError(f"expected an object, received {fields!r:.60}")
    refuse_all([*missing_keys(fields, needed)])
    known = (*needed, *further)
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise RequestError(f"expected only {', '.join(known)}, received {unknown[0]!r:.60}")
    return fields


def missing_keys(fields: Mapping[str, Any], names: Iterable[str]) -> Iterator[str]:
    """Say which keys an object lacks; nothing where it has them all."""
    missing = [name for name in names if name not in fields]
    if missing:
        received = ", ".join(map(repr, fields)) or "none"
        keys = "the key" if len(missing) == 1 else "the keys"
        yield f"expected {keys} {', '.join(map(repr, missing))}, received only: {received:.200}"


def refuse_all(problems: Sequence[str]) -> None:
    """Refuse a request that has problems.

    Raises:
        RequestError: With the first :data:`MOST_LISTED` problems, and how many more there are.
    """
    if problems:
        more = len(problems) - MOST_LISTED
        listed = [*problems[:MOST_LISTED], *([f"and {more:,} more"] if more > 0 else [])]
        raise RequestError("; ".join(listed))


def check_storable(key: str | int, where: str) -> None:
    """Refuse a key that no log can hold, nor a file of scores or a store of histories.

    Raises:
        RequestError: Where it has a lone surrogate, or more than 64 bits.
    """
    if isinstance(key, int):
        if not -(2**63) <= key < 2**63:
            raise RequestError(f"{where}: expected a whole number of 64 bits, received {key!r:.60}")
        return
    try:
        key.encode()
    except UnicodeEncodeError:
        raise RequestError(
            f"{where}: expected text, received a lone surrogate in {key!a:.60}"
        ) from None
