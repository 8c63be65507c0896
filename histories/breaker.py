"""A breaker: what did not answer is left alone for a while, so that nobody waits for it again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from .store import StoreError

FIRST_SECONDS, MOST_SECONDS = 1.0, 15.0
"""How long it is left alone after it failed once, and at most after it failed again and again."""


class Breaker:
    """Lets calls through as long as they succeed; use as a context manager around each.

    After a failure calls are refused at once for a while. Then one is let through: where it
    succeeds all are again, where it fails they are refused twice as long.

    Args:
        what: Is called, for messages.
        clock: Tells the time, in seconds.
    """

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Let calls through."""
        self._what, self._clock = what, clock
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0
        """When the next call is let through."""

    def __enter__(self) -> None:
        """Let a call through.

        Raises:
            StoreError: Where none is just now.
        """
        with self._lock:
            now = self._clock()
            if self._failures and now < self._until:
                raise StoreError(
                    f"{self._what}: did not answer; it is asked again in {self._until - now:.1f} s."
                )
            if self._failures:
                self._until = now + self._pause()  # this call tries, others wait for what it finds

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take note of how the call went."""
        with self._lock:
            if error is None:
                self._failures = 0
            elif isinstance(error, StoreError):
                self._failures += 1
                self._until = self._clock() + self._pause()

    def _pause(self) -> float:
        return float(min(FIRST_SECONDS * 2 ** (self._failures - 1), MOST_SECONDS))
