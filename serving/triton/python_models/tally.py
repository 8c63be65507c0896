"""What a version of the model `events` did, as counters among Triton's metrics."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from ...events.event_encoder import EncodedEvent
from ...scoring.signature_inputs import Scores

SCORE_BOUNDS = tuple(round(0.1 * tenth, 1) for tenth in range(1, 11))
SECONDS_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
EVENTS, CANDIDATES = "merlin_sim_events", "merlin_sim_events_candidates"
UNSEEN_USERS = "merlin_sim_events_unseen_users"
UNSEEN_CANDIDATES = "merlin_sim_events_unseen_candidates"
EMPTY_HISTORIES = "merlin_sim_events_empty_histories"
CALLS, SECONDS = "merlin_sim_events_calls", "merlin_sim_events_call_seconds"
SCORES = "merlin_sim_events_scores"
DESCRIPTIONS = {
    EVENTS: "Events that were answered",
    CANDIDATES: "Their candidates",
    UNSEEN_USERS: "Events of users who were not there in training",
    UNSEEN_CANDIDATES: "Candidates that were not there in training",
    EMPTY_HISTORIES: "Events without a known interaction",
    CALLS: "Calls of the model; one may be for several requests",
    SECONDS: "Seconds in these calls",
    f"{SECONDS}_bucket": "Calls that took so many seconds at most",
    f"{SCORES}_bucket": "Candidates with such a score at most",
}
Key = tuple[str, int, str]
"""Name, version, and bound of a bucket, or nothing."""
Increment = Callable[[str, dict[str, str], float], None]
"""Adds to a metric with these labels."""
PERIOD = 1.0


class Tally:
    """Counts in memory, and tells Triton once a second: each number told is a message to it.

    Args:
        increment: Tells Triton.
        period: Seconds between two times.
    """

    def __init__(self, increment: Increment, period: float = PERIOD) -> None:
        """Begin to tell."""
        self._increment = increment
        self._counts: Counter[Key] = Counter()
        self._known: set[Key] = set()
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._period = period
        self._thread = threading.Thread(target=self._run, name="tally", daemon=True)
        self._thread.start()

    def add(
        self, version: int, events: Sequence[EncodedEvent], scores: Sequence[Scores], seconds: float
    ) -> None:
        """Count a call of the model.

        Args:
            version: Which one it was of.
            events: What was asked.
            scores: What was answered.
            seconds: How long it took.
        """
        every = np.concatenate([np.zeros(0, np.float32), *scores])
        counts: dict[tuple[str, str], float] = {
            (EVENTS, ""): len(events),
            (CANDIDATES, ""): len(every),
            (UNSEEN_USERS, ""): sum(event.unseen_user for event in events),
            (UNSEEN_CANDIDATES, ""): sum(int(e.unseen_candidates.sum()) for e in events),
            (EMPTY_HISTORIES, ""): sum(_is_empty(event) for event in events),
            (CALLS, ""): 1,
            (SECONDS, ""): seconds,
        }
        for bound in SECONDS_BOUNDS:
            counts[f"{SECONDS}_bucket", str(bound)] = seconds <= bound
        counts[f"{SECONDS}_bucket", "+Inf"] = 1
        for bound in SCORE_BOUNDS:
            counts[f"{SCORES}_bucket", str(bound)] = int((every <= np.float32(bound)).sum())
        counts[f"{SCORES}_bucket", "+Inf"] = len(every)
        with self._lock:
            for (name, bound_text), count in counts.items():
                # 0 too, once: a share of what has never been seen is 0, not unknown.
                if count or (name, version, bound_text) not in self._known:
                    self._known.add((name, version, bound_text))
                    self._counts[name, version, bound_text] += count  # type: ignore[assignment]

    def close(self) -> None:
        """Tell nothing more: Triton takes no messages of a model that it ends."""
        self._ending.set()
        self._thread.join(self._period)

    def _run(self) -> None:
        while not self._ending.wait(self._period):
            self.tell()

    def tell(self) -> None:
        """Tell what was counted since the last time."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        for (name, version, bound), count in counts.items():
            labels = {"model": "events", "version": str(version), "process": str(os.getpid())}
            self._increment(name, labels | ({"le": bound} if bound else {}), count)


def _is_empty(event: EncodedEvent) -> bool:
    return bool(event.histories) and not len(next(iter(event.histories.values())))
