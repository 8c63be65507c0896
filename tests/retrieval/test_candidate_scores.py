"""What a ranker says of items by their ids is what it says of their keys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from merlin_sim.retrieval import candidate_scores
from merlin_sim.retrieval.candidate_scores import CandidateScores
from merlin_sim.retrieval.candidates.histories import History
from merlin_sim.serving.events.event_encoder import EventEncoder
from merlin_sim.serving.scoring.scorer import Scorer


@pytest.mark.parametrize("is_looked_up", [False, True])
def test_items_of_another_day_are_scored_as_their_keys(towers, ranker, is_looked_up, monkeypatch):
    """The catalogue has them in another order than the ranker, and one that it does not know."""
    monkeypatch.setattr(candidate_scores, "ITEMS_AT_ONCE", 64)
    keys = towers.catalogue.keys
    mixed = np.array([None, *keys[:0:-1], "new"], object)
    scores = CandidateScores(ranker, replace(towers.catalogue, keys=mixed, counts=None))
    if is_looked_up:
        scores.look_up_all()
    history = History({"user_id": "x"}, [keys[3], "?", keys[8]])
    encoder, scorer = EventEncoder(ranker), Scorer(ranker)
    for ids in ([5, len(mixed) - 1, 2], [2, 2, 9, 5]):
        event = {"user_id": "x", "history": history.items, "candidates": [mixed[i] for i in ids]}
        (expected,) = scorer.score_events([encoder.encode(encoder.parse(event))])
        found = scores.score(history, np.array(ids), {})
        np.testing.assert_array_equal(found, expected)
        assert np.ptp(found) > 1e-4
