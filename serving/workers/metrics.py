"""Counters of a server's models, for Prometheus.

Each worker writes its numbers to files of its own, and the front adds them up when it is asked
(prometheus_client calls it the multiprocess mode): what a worker has counted outlives it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from prometheus_client import Counter, Histogram

from ..encoder import EncodedEvent
from ..histories.store import History, Reading, StoreError, SummedHistory
from ..signatures import Scores

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Bounds of the buckets of times."""
SCORE_BOUNDS = tuple(round(0.1 * tenth, 1) for tenth in range(1, 11))
_BY_VERSION, _BY_MODEL = ("version",), ("model",)
_EVENTS = "merlin_sim_events"
EVENTS = Counter(_EVENTS, "Events that were answered", _BY_VERSION)
CANDIDATES = Counter(f"{_EVENTS}_candidates", "Their candidates", _BY_VERSION)
UNSEEN_USERS = Counter(
    f"{_EVENTS}_unseen_users", "Events of users who were not there in training", _BY_VERSION
)
UNSEEN_CANDIDATES = Counter(
    f"{_EVENTS}_unseen_candidates", "Candidates that were not there in training", _BY_VERSION
)
EMPTY_HISTORIES = Counter(
    f"{_EVENTS}_empty_histories", "Events without a known interaction", _BY_VERSION
)
CALL_SECONDS = Histogram(
    f"{_EVENTS}_call_seconds",
    "Seconds in calls of the model; one may be for several requests",
    _BY_VERSION,
    buckets=SECONDS,
)
# A histogram of prometheus_client takes one value at a time, and an event may have 10,000 scores.
SCORES = Counter(f"{_EVENTS}_scores", "Candidates with such a score at most", ("version", "le"))
_READS = "merlin_sim_histories_read"
READS = Counter("merlin_sim_histories_reads", "Histories read from the store", _BY_MODEL)
READ = Counter(f"{_READS}_interactions", "Interactions in them", _BY_MODEL)
READ_EMPTY = Counter(f"{_READS}_empty", "Histories without an interaction", _BY_MODEL)
READ_FAILURES = Counter(f"{_READS}_failures", "Histories that could not be read", _BY_MODEL)
READ_SECONDS = Histogram(
    f"{_READS}_seconds",
    "Seconds in which histories were read; those of one batch are read together",
    _BY_MODEL,
    buckets=SECONDS,
)


def count_events(
    version: int, events: Sequence[EncodedEvent], scores: Sequence[Scores], seconds: float
) -> None:
    """Count a call of a version of the model `events`: what was asked, what was answered."""
    of = str(version)
    every = np.concatenate([np.zeros(0, np.float32), *scores])
    EVENTS.labels(of).inc(len(events))
    CANDIDATES.labels(of).inc(len(every))
    UNSEEN_USERS.labels(of).inc(sum(event.unseen_user for event in events))
    UNSEEN_CANDIDATES.labels(of).inc(sum(int(e.unseen_candidates.sum()) for e in events))
    histories = [next(iter(event.histories.values())) for event in events if event.histories]
    EMPTY_HISTORIES.labels(of).inc([*map(len, histories)].count(0))
    CALL_SECONDS.labels(of).observe(seconds)
    for bound in SCORE_BOUNDS:
        SCORES.labels(of, str(bound)).inc(int((every <= np.float32(bound)).sum()))
    SCORES.labels(of, "+Inf").inc(len(every))


@dataclass(frozen=True)
class CountedReads:
    """Reads a store for a model, and counts; see :class:`~..histories.store.Reading`."""

    store: Reading
    model: str

    def read_all(self, users: Sequence[str], newest: int) -> list[History | StoreError]:
        """Read the histories of users together."""
        begin = time.perf_counter()
        found = self.store.read_all(users, newest)
        self._count(begin, found)
        return found

    def read_summed(
        self, users: Sequence[str], newest: int, model: str
    ) -> list[SummedHistory | StoreError]:
        """Read them with what is kept of the whole."""
        begin = time.perf_counter()
        found = self.store.read_summed(users, newest, model)
        self._count(begin, [one if isinstance(one, StoreError) else one.newest for one in found])
        return found

    def keep_summary(self, user: str, model: str, summary: bytes, mark: tuple[int, int]) -> None:
        """Keep a summary."""
        self.store.keep_summary(user, model, summary, mark)

    def _count(self, begin: float, found: Sequence[History | StoreError]) -> None:
        READ_SECONDS.labels(self.model).observe(time.perf_counter() - begin)
        lengths = [len(one.items) for one in found if isinstance(one, History)]
        READS.labels(self.model).inc(len(found))
        READ.labels(self.model).inc(sum(lengths))
        READ_EMPTY.labels(self.model).inc(lengths.count(0))
        READ_FAILURES.labels(self.model).inc(len(found) - len(lengths))
