"""Numbers that a model counts, as counters among Triton's metrics."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...histories.store import History, Reading, StoreError
from ..events.encoder import EncodedEvent
from ..signatures import Scores

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


SCORE_BOUNDS = tuple(round(0.1 * tenth, 1) for tenth in range(1, 11))
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


class Tally(Telling):
    """Counts what is scored, version by version.

    Args:
        increment: Tells Triton.
        period: Seconds between two times.
    """

    def __init__(self, increment: Increment, period: float = PERIOD) -> None:
        """Begin to tell."""
        super().__init__("events", increment, period)

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
        of = (("version", str(version)),)
        counts: dict[Counted, float] = {
            (EVENTS, of): len(events),
            (CANDIDATES, of): len(every),
            (UNSEEN_USERS, of): sum(event.unseen_user for event in events),
            (UNSEEN_CANDIDATES, of): sum(int(e.unseen_candidates.sum()) for e in events),
            (EMPTY_HISTORIES, of): sum(_is_empty(event) for event in events),
            (CALLS, of): 1,
            **seconds_counts(SECONDS, of, seconds),
        }
        for bound in SCORE_BOUNDS:
            below = int((every <= np.float32(bound)).sum())
            counts[f"{SCORES}_bucket", (*of, ("le", str(bound)))] = below
        counts[f"{SCORES}_bucket", (*of, ("le", "+Inf"))] = len(every)
        self.count(counts)


def _is_empty(event: EncodedEvent) -> bool:
    return bool(event.histories) and not len(next(iter(event.histories.values())))


READS, READ_SECONDS = "merlin_sim_histories_reads", "merlin_sim_histories_read_seconds"
READ, FAILURES = "merlin_sim_histories_read_interactions", "merlin_sim_histories_read_failures"
EMPTY = "merlin_sim_histories_read_empty"
READ_DESCRIPTIONS = {
    READS: "Histories that were read from the store",
    READ: "Interactions in them",
    EMPTY: "Histories without an interaction",
    FAILURES: "Histories that could not be read",
    READ_SECONDS: "Seconds in which they were read; those of one batch are read together",
    f"{READ_SECONDS}_bucket": "Batches of histories that were read in so many seconds at most",
}


class CountedReads:
    """Reads a store, and counts.

    Args:
        store: The store.
        telling: Takes the numbers.
    """

    def __init__(self, store: Reading, telling: Telling) -> None:
        """Remember both."""
        self._store, self._telling = store, telling

    def read_all(self, users: Sequence[str], newest: int) -> list[History | StoreError]:
        """See :class:`~merlin_sim.histories.store.Reading`."""
        begin = time.perf_counter()
        found = self._store.read_all(users, newest)
        seconds = time.perf_counter() - begin
        lengths = [len(one.items) for one in found if isinstance(one, History)]
        self._telling.count(
            {
                (READS, ()): len(found),
                (READ, ()): sum(lengths),
                (EMPTY, ()): lengths.count(0),
                (FAILURES, ()): len(found) - len(lengths),
                **seconds_counts(READ_SECONDS, (), seconds),
            }
        )
        return found
