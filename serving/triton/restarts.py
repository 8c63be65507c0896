"""How often a server that ends by itself is started again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from .bundled_server import ServerError

MOST = 5
WITHIN = 600.0


class Restarts:
    """Counts the ends of a server, and says when it is enough.

    Args:
        most: Ends after which it is not started again,
        within: where they fall into so many seconds.
        clock: Tells the time, in seconds.
    """

    def __init__(
        self,
        most: int = MOST,
        within: float = WITHIN,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with none."""
        self._most, self._within, self._clock = most, within, clock
        self._ends: list[float] = []

    def count(self, code: int) -> None:
        """Take note of an end.

        Raises:
            ServerError: Where the server ended too often.
        """
        now = self._clock()
        self._ends = [*(end for end in self._ends if now - end < self._within), now]
        if len(self._ends) >= self._most:
            raise ServerError(
                f"Triton ended {len(self._ends)} times within {self._within:.0f} s, at last "
                f"{describe_end(code)}: it is not started again (what it said stands above; "
                "--verbose lets it say more)."
            )


def describe_end(code: int) -> str:
    """How a process ended, for a sentence.

    >>> describe_end(-11), describe_end(1)
    ('by signal 11 (SIGSEGV)', 'with exit code 1')
    """
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"by signal {-code}"
