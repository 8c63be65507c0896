"""How a model reads the histories that a store keeps, as counters among Triton's metrics."""

from __future__ import annotations

import time

from ....histories.store import History, Reading, StoreError
from .telling import Telling, seconds_counts

READS, READ_SECONDS = "merlin_sim_histories_reads", "merlin_sim_histories_read_seconds"
READ, FAILURES = "merlin_sim_histories_read_interactions", "merlin_sim_histories_read_failures"
EMPTY = "merlin_sim_histories_read_empty"
DESCRIPTIONS = {
    READS: "Histories that were read from the store",
    READ: "Interactions in them",
    EMPTY: "Histories without an interaction",
    FAILURES: "Histories that could not be read",
    READ_SECONDS: "Seconds in which they were read",
    f"{READ_SECONDS}_bucket": "Histories that were read in so many seconds at most",
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

    def read(self, user: str, newest: int) -> History:
        """See :class:`~merlin_sim.histories.store.HistoryStore`."""
        begin = time.perf_counter()
        try:
            found = self._store.read(user, newest)
        except StoreError:
            self._telling.count({(READS, ()): 1, (FAILURES, ()): 1})
            raise
        seconds = time.perf_counter() - begin
        self._telling.count(
            {
                (READS, ()): 1,
                (READ, ()): len(found.items),
                (EMPTY, ()): int(not found.items),
                (FAILURES, ()): 0,
                **seconds_counts(READ_SECONDS, (), seconds),
            }
        )
        return found
