"""Numbers that a model counts, as counters among Triton's metrics."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping

SECONDS_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
PERIOD = 1.0
Labels = tuple[tuple[str, str], ...]
Counted = tuple[str, Labels]
"""Name of a metric, and its labels beside those that every one has."""
Increment = Callable[[str, dict[str, str], float], None]
"""Adds to a metric with these labels."""


class Telling:
    """Counts in memory, and tells Triton once a second: each number told is a message to it.

    Args:
        model: Whose numbers they are.
        increment: Tells Triton.
        period: Seconds between two times.
    """

    def __init__(self, model: str, increment: Increment, period: float = PERIOD) -> None:
        """Begin to tell."""
        self._model = model
        self._increment = increment
        self._counts: Counter[Counted] = Counter()
        self._known: set[Counted] = set()
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._period = period
        self._thread = threading.Thread(target=self._run, name="tally", daemon=True)
        self._thread.start()

    def count(self, counts: Mapping[Counted, float]) -> None:
        """Add to numbers; one that is 0 is told once, as a share of it is 0, not unknown."""
        with self._lock:
            for key, count in counts.items():
                if count or key not in self._known:
                    self._known.add(key)
                    self._counts[key] += count  # type: ignore[assignment]

    def close(self) -> None:
        """Tell nothing more: Triton takes no messages of a model that it ends."""
        self._ending.set()
        self._thread.join(self._period)

    def tell(self) -> None:
        """Tell what was counted since the last time."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        own = {"model": self._model, "process": str(os.getpid())}
        for (name, labels), count in counts.items():
            self._increment(name, own | dict(labels), count)

    def _run(self) -> None:
        while not self._ending.wait(self._period):
            self.tell()


def seconds_counts(name: str, labels: Labels, seconds: float) -> dict[Counted, float]:
    """Count how long something took: the sum, and buckets that hold all that took no longer.

    >>> counts = seconds_counts("x", (("stage", "score"),), 0.3)
    >>> counts["x", (("stage", "score"),)], counts["x_bucket", (("stage", "score"), ("le", "0.2"))]
    (0.3, 0)
    """
    bounds: dict[Counted, float] = {
        (f"{name}_bucket", (*labels, ("le", str(bound)))): int(seconds <= bound)
        for bound in SECONDS_BOUNDS
    }
    return {(name, labels): seconds, **bounds, (f"{name}_bucket", (*labels, ("le", "+Inf"))): 1}
