"""How a model reads the histories that a store keeps, as counters among Triton's metrics."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ...histories.store import History, Reading, StoreError
from .telling import Telling, seconds_counts

READS, READ_SECONDS = "merlin_sim_histories_reads", "merlin_sim_histories_read_seconds"
READ, FAILURES = "merlin_sim_histories_read_interactions", "merlin_sim_histories_read_failures"
EMPTY = "merlin_sim_histories_read_empty"
DESCRIPTIONS = {
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
