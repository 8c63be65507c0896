"""Counts of the model `events`, as Triton is given them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from merlin_sim.serving.events.encoder import EncodedEvent
from merlin_sim.serving.workers.metrics import DESCRIPTIONS, Tally


def event(candidates, history, user=1):
    ids = {"thing": np.array(candidates)}
    return EncodedEvent({"who": np.array([user])}, ids, {"things": np.array(history)}, ("who",))


def test_each_version_is_counted_for_itself_and_all_is_told():
    told = Counter()

    def increment(name, labels, count):
        assert labels.pop("model") == "events" and labels.pop("process").isdigit()
        assert name in DESCRIPTIONS
        told[(name.removeprefix("merlin_sim_"), *sorted(labels.items()))] += count

    tally = Tally(increment, period=1000)
    seven = [event([3, 0], [4]), event([5], [], user=0)]
    tally.add(7, seven, [np.float32([0.1, 0.35]), np.float32([1.0])], 0.004)
    tally.add(7, [event([2], [1])], [np.float32([0.05])], 0.03)
    tally.add(8, [event([], [1])], [np.float32([])], 2.0)
    assert not told  # not one by one
    tally.tell()
    tally.add(8, [event([1], [1])], [np.float32([0.5])], 1.0)
    tally.close()
    assert not tally._thread.is_alive()  # it waited for no period
    of_seven, of_eight = (("version", number) for number in ("7", "8"))
    assert told["events", of_seven] == 3 and told["events", of_eight] == 1
    assert told["events_candidates", of_seven] == 4
    assert told["events_candidates", of_eight] == 0
    assert told["events_unseen_users", of_seven] == 1
    assert told["events_unseen_candidates", of_seven] == 1
    assert told["events_empty_histories", of_seven] == 1
    assert told["events_calls", of_seven] == 2
    assert told["events_call_seconds", of_seven] == pytest.approx(0.034)
    score = {
        bound: told["events_scores_bucket", ("le", bound), of_seven]
        for bound in ("0.1", "0.3", "0.4", "0.9", "1.0", "+Inf")
    }
    assert score == {"0.1": 2, "0.3": 2, "0.4": 3, "0.9": 3, "1.0": 4, "+Inf": 4}
    seconds = {
        bound: told["events_call_seconds_bucket", ("le", bound), of_seven]
        for bound in ("0.002", "0.005", "0.02", "0.05", "+Inf")
    }
    assert seconds == {"0.002": 0, "0.005": 1, "0.02": 1, "0.05": 2, "+Inf": 2}
    assert told["events_call_seconds_bucket", ("le", "1.0"), of_eight] == 0
    assert told["events_call_seconds_bucket", ("le", "+Inf"), of_eight] == 1
    never = told.keys() - {key for key, count in told.items() if count}
    assert ("events_unseen_users", of_eight) in never  # 0, not unknown
