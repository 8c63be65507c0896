"""How much one request may ask for."""

from __future__ import annotations

from dataclasses import dataclass

from ..foundation.exceptions import MerlinSimError
from ..foundation.requests import RequestError
from ..foundation.settings import require_settings, setting


class UnavailableError(MerlinSimError):
    """A request cannot be answered just now, through no fault of its own."""


NOT_NOW = "not just now: "
"""Begins what a model in Triton says of a request that gets 503 over HTTP."""
TOO_LARGE = "the request is too large: "
"""Begins what a model in Triton says of a request that gets 413 over HTTP."""


class TooLargeError(RequestError):
    """A request that is larger than a server answers at once; the message says what to split."""


MAX_EVENTS = 4096
"""Events of one request to a server."""
EVENTS_PER_BATCH = 256
"""Events that a server scores together, of requests that come together."""


@dataclass(frozen=True)
class Limits:
    """Limits above which a request is refused before any work."""

    max_candidates: int = setting(
        10_000, "Candidates per event, rows per request of ids; more are refused.", at_least=1
    )
    max_history: int = setting(
        10_000,
        "Positions of a history as it is given, of which the model reads the newest; longer ones "
        "are refused.",
        at_least=1,
    )

    def __post_init__(self) -> None:
        require_settings(self)

    def check_candidates(self, count: int, what: str = "candidates") -> None:
        """Refuse more candidates than are allowed."""
        if count > self.max_candidates:
            raise TooLargeError(
                f"{what}: expected at most {self.max_candidates:,}, received {count:,}"
            )

    def check_answer(self, events: int, longest: int) -> None:
        """Refuse a request with more scores, in rows of one length, than a whole batch has."""
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
