"""What is refused of a request: bounds, and the checks that several kinds of requests share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..foundation.exceptions import MerlinSimError


class RequestError(MerlinSimError):
    """A request that cannot be answered; the message says what was expected and what came."""


class UnavailableError(MerlinSimError):
    """What cannot be answered just now, through no fault of the request."""


NOT_NOW = "not just now: "
"""Begins what a model in Triton says of a request that gets 503 over HTTP."""
TOO_LARGE = "the request is too large: "
"""Begins what a model in Triton says of a request that gets 413 over HTTP."""


class TooLargeError(RequestError):
    """A request that is larger than a server answers at once; the message says what to split."""


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


MAX_EVENTS = 4096
"""Events of one request to a server."""
EVENTS_PER_BATCH = 256
"""Events that a server scores together, of requests that come together."""


@dataclass(frozen=True)
class Limits:
    """What is refused before any work."""

    max_candidates: int = 10_000
    """Candidates of one event; rows of one request of ids."""
    max_history: int = 10_000
    """Positions of one history as it is sent; of those the model reads the newest."""

    def __post_init__(self) -> None:
        """Check both."""
        for name in ("max_candidates", "max_history"):
            if getattr(self, name) < 1:
                raise MerlinSimError(
                    f"`{name}` should be a positive integer. "
                    f"Received: `{name}` = {getattr(self, name)}."
                )

    def check_candidates(self, count: int, what: str = "candidates") -> None:
        """Refuse more candidates than are allowed."""
        if count > self.max_candidates:
            raise TooLargeError(
                f"{what}: expected at most {self.max_candidates:,}, received {count:,}"
            )

    def check_answer(self, events: int, longest: int) -> None:
        """Refuse a request whose answer, rows of one length, would be too large.

        Raises:
            TooLargeError: Where it has more scores than :data:`EVENTS_PER_BATCH` whole events.
        """
        most = EVENTS_PER_BATCH * self.max_candidates
        if events * longest > most:
            raise TooLargeError(
                f"expected an answer of at most {most:,} scores, as many for each event as the one "
                f"with the most candidates has. Received: {events:,} events, one with {longest:,} "
                "candidates. Send fewer events in a request"
            )

    def check_history(self, count: int, what: str = "history") -> None:
        """Refuse a longer history than is allowed."""
        if count > self.max_history:
            raise TooLargeError(
                f"{what}: expected at most {self.max_history:,}, received {count:,}"
            )
