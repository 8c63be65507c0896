"""How much one request may ask for."""

from __future__ import annotations

from dataclasses import dataclass

from ..foundation.exceptions import MerlinSimError


class RequestError(MerlinSimError):
    """A request that cannot be answered; the message says what was expected and what came."""


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
            raise RequestError(
                f"{what}: expected at most {self.max_candidates:,}, received {count:,}"
            )

    def check_history(self, count: int, what: str = "history") -> None:
        """Refuse a longer history than is allowed."""
        if count > self.max_history:
            raise RequestError(f"{what}: expected at most {self.max_history:,}, received {count:,}")
