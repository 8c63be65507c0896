"""How much a server takes at once; what is more is refused before anything is done for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class TooMuchError(Exception):
    """More than a server takes at once; the message says of what."""


class Admission:
    """Counts the requests in hand, and the bytes of their bodies.

    >>> admission = Admission(most_requests=1, most_bytes=10)
    >>> with admission.enter(4):
    ...     with admission.enter(4): pass
    Traceback (most recent call last):
    merlin_sim.serving.triton.admission.TooMuchError: 1 requests are in hand, as many as are taken \
at once

    Args:
        most_requests: In hand at once.
        most_bytes: Of their bodies together; one request alone may have as many as it is allowed.
    """

    def __init__(self, most_requests: int, most_bytes: int) -> None:
        """Begin with none."""
        self._most_requests, self._most_bytes = most_requests, most_bytes
        self.requests = 0
        self.bytes = 0
        self.refused = 0

    @contextmanager
    def enter(self, length: int) -> Iterator[None]:
        """Hold a place for a request.

        Raises:
            TooMuchError: Where there is none.
        """
        if self.requests >= self._most_requests:
            self.refused += 1
            raise TooMuchError(
                f"{self.requests} requests are in hand, as many as are taken at once"
            )
        if self.requests and self.bytes + length > self._most_bytes:
            self.refused += 1
            raise TooMuchError(f"requests of {self.bytes:,} bytes are in hand")
        self.requests += 1
        self.bytes += length
        try:
            yield
        finally:
            self.requests -= 1
            self.bytes -= length
