"""What a version of the model `events` did, as counters among Triton's metrics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..events.event_encoder import EncodedEvent
from ..scoring.signature_inputs import Scores
from .telling import PERIOD, Counted, Increment, Telling, seconds_counts

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
