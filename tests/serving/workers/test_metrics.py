"""What the model `events` counts."""

from __future__ import annotations

import numpy as np
import pytest
from counted import counting

from merlin_sim.serving.encoder import EncodedEvent
from merlin_sim.serving.workers.metrics import count_events


def event(candidates, history, user=1):
    ids = {"thing": np.array(candidates)}
    return EncodedEvent({"who": np.array([user])}, ids, {"things": np.array(history)}, ("who",))


def test_each_version_is_counted_for_itself():
    counted = counting()
    seven = [event([3, 0], [4]), event([5], [], user=0)]
    count_events(7, seven, [np.float32([0.1, 0.35]), np.float32([1.0])], 0.004)
    count_events(7, [event([2], [1])], [np.float32([0.05])], 0.03)
    count_events(8, [event([], [1])], [np.float32([])], 2.0)

    def reported(name, version="7", **labels):
        return counted(f"merlin_sim_events{name}", version=version, **labels)

    assert reported("_total") == 3 and reported("_total", "8") == 1
    assert reported("_candidates_total") == 4 and reported("_candidates_total", "8") == 0
    assert reported("_unseen_users_total") == 1
    assert reported("_unseen_users_total", "8") == 0  # 0, not unknown
    assert reported("_unseen_candidates_total") == 1
    assert reported("_empty_histories_total") == 1
    assert reported("_call_seconds_count") == 2
    assert reported("_call_seconds_sum") == pytest.approx(0.034)
    score = {
        b: reported("_scores_total", le=b) for b in ("0.1", "0.3", "0.4", "0.9", "1.0", "+Inf")
    }
    assert score == {"0.1": 2, "0.3": 2, "0.4": 3, "0.9": 3, "1.0": 4, "+Inf": 4}
    bounds = ("0.002", "0.005", "0.02", "0.05", "+Inf")
    seconds = {bound: reported("_call_seconds_bucket", le=bound) for bound in bounds}
    assert seconds == {"0.002": 0, "0.005": 1, "0.02": 1, "0.05": 2, "+Inf": 2}
    assert reported("_call_seconds_bucket", "8", le="1.0") == 0
    assert reported("_call_seconds_bucket", "8", le="+Inf") == 1
