"""What the model `recommend` did, as counters among Triton's metrics."""

from __future__ import annotations

from ...serving.workers.telling import (
    PERIOD,
    Counted,
    Increment,
    Telling,
    seconds_counts,
)
from ..recommender import POPULAR, Answer

MODEL = "recommend"
REQUESTS, REFUSED = "merlin_sim_recommend_requests", "merlin_sim_recommend_refused"
RETRIEVED, KEPT = "merlin_sim_recommend_retrieved", "merlin_sim_recommend_kept"
ITEMS = "merlin_sim_recommend_items"
EMPTY_HISTORIES = "merlin_sim_recommend_empty_histories"
UNSEEN_USERS = "merlin_sim_recommend_unseen_users"
SECONDS, STAGE_SECONDS = "merlin_sim_recommend_seconds", "merlin_sim_recommend_stage_seconds"
DESCRIPTIONS = {
    REQUESTS: "Requests that were answered",
    REFUSED: "Requests that were refused, or failed",
    RETRIEVED: "Candidates that were looked at",
    KEPT: "Candidates that the filters left",
    ITEMS: "Items in answers",
    EMPTY_HISTORIES: "Requests of users without a history, who got popular items",
    UNSEEN_USERS: "Requests of users who were not there when the towers were trained",
    SECONDS: "Seconds from a request's arrival at the model to its answer",
    f"{SECONDS}_bucket": "Requests that took so many seconds at most",
    STAGE_SECONDS: "Seconds that requests spent in a stage",
    f"{STAGE_SECONDS}_bucket": "Requests that spent so many seconds in a stage at most",
}


class RecommendTally(Telling):
    """Counts what is answered, version by version of the ranker.

    Args:
        increment: Tells Triton.
        period: Seconds between two times.
    """

    def __init__(self, increment: Increment, period: float = PERIOD) -> None:
        """Begin to tell."""
        super().__init__(MODEL, increment, period)

    def stage(self, version: int, stage: str, seconds: float) -> None:
        """Count a request's stage."""
        labels = (("version", str(version)), ("stage", stage))
        self.count(seconds_counts(STAGE_SECONDS, labels, seconds))

    def answered(self, version: int, answer: Answer, is_known: bool, seconds: float) -> None:
        """Count an answer.

        Args:
            version: Of the ranker.
            answer: What was answered.
            is_known: Whether the towers know the user.
            seconds: How long it took.
        """
        of = (("version", str(version)),)
        counts: dict[Counted, float] = {
            (REQUESTS, of): 1,
            (REFUSED, of): 0,
            (RETRIEVED, of): answer.retrieved,
            (KEPT, of): answer.kept,
            (ITEMS, of): len(answer.items),
            (EMPTY_HISTORIES, of): int(answer.source == POPULAR),
            (UNSEEN_USERS, of): int(not is_known),
            **seconds_counts(SECONDS, of, seconds),
        }
        self.count(counts)

    def refused(self, version: int) -> None:
        """Count a request that was not answered."""
        self.count({(REFUSED, (("version", str(version)),)): 1})
