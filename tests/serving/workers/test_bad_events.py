"""One bad event costs no other its answer; what the model `events` counts."""

from __future__ import annotations

import json

import numpy as np
import pytest
from counted import counting
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from merlin_sim.foundation.requests import RequestError
from merlin_sim.serving.encoder import EncodedEvent
from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.histories.store import History, StoreError
from merlin_sim.serving.limits import UnavailableError
from merlin_sim.serving.settings import LogSettings, ModelSettings
from merlin_sim.serving.versions import Canary, Versions, meets_canary
from merlin_sim.serving.workers import events_model
from merlin_sim.serving.workers.events_model import EventsModel
from merlin_sim.serving.workers.metrics import count_events
from merlin_sim.serving.workers.protocol import EVENT, SCORES
from merlin_sim.serving.workers.worker import TritonRequest, refusal

HOSTILE = st.one_of(
    st.sampled_from(["\ud800", "a\udfffb", "\0", "", 2**63, 2**70, -(2**70), 1e400, float("nan")]),
    st.sampled_from([None, True, [], {}, [[]], {"item_id": "\ud800"}, {"\ud800": 1}, 10**400]),
    st.text(st.characters(codec=None), max_size=4),
    st.integers(),
    st.floats(),
)
"""What an event may have anywhere; half of a pair of surrogates is among all of it."""
PARTS = (
    "user_id",
    "history",
    "candidates",
    "in history",
    "in candidates",
    "an_unknown_key",
    "whole",
)


def changed(event, part, value):
    """The text of an event with something hostile in it."""
    found = {**event, "history": [*event["history"]], "candidates": [*event["candidates"]]}
    if part == "whole":
        return json.dumps(value)
    if part == "an_unknown_key":
        return json.dumps({**found, str(value): value})
    if part.startswith("in "):
        found[part.removeprefix("in ")].append(value)
    else:
        found[part] = value
    return json.dumps(found)


def answers(model, texts):
    """What each request of one event gets, all of them taken together."""
    found = {}
    requests = [
        TritonRequest({EVENT: np.array([[text.encode()]], object)}, frozenset({SCORES}))
        for text in texts
    ]

    def reply(index, result):
        assert index not in found
        found[index] = result

    model.take(requests, reply)
    assert len(found) == len(texts)
    return [found[index] for index in range(len(texts))]


@pytest.fixture(scope="module")
def reported(servable, second, tmp_path_factory):
    """The model `events` with a canary, a store and a log, as a server has it."""
    home = tmp_path_factory.mktemp("model")
    open_store(str(home / "store"), create=True).close()
    log = LogSettings(home / "log", log_share=1.0)
    log.make_directory()
    canary = {"version": 1, "canary": Canary(2, 0.5), "canary_servable": second}
    found = EventsModel(
        ModelSettings(servable.path, log=log, histories=str(home / "store"), **canary)
    )
    yield found
    found.close()


@pytest.fixture(scope="module")
def good(events):
    return [json.dumps(event) for event in events[:6]]


@pytest.fixture(scope="module")
def alone(reported, good):
    """What the good get where nothing bad stands beside them."""
    return answers(reported, good)


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_good_are_answered_beside_whatever_comes(reported, events, good, alone, data):
    bad = [
        changed(events[7], data.draw(st.sampled_from(PARTS)), data.draw(HOSTILE)) for _ in range(3)
    ]
    indices = data.draw(st.permutations(range(9)))
    together = [([*good, *bad])[index] for index in indices]
    found = dict(zip(indices, answers(reported, together), strict=True))
    for index, answered in enumerate(alone):
        np.testing.assert_allclose(found[index][SCORES], answered[SCORES], atol=1e-5)
    for index in range(6, 9):
        if isinstance(found[index], Exception):
            assert isinstance(found[index], RequestError), repr(found[index])
            code, message = refusal(found[index])
            assert code == "invalid" and message.encode()


@pytest.mark.slow
def test_a_store_that_is_away_stops_no_worker_from_starting(servable, events, expected, tmp_path):
    pytest.importorskip("redis")
    address = f"unix://{tmp_path / 'no socket'}?db=0"
    model = EventsModel(ModelSettings(servable.path, histories=address))
    without = {name: value for name, value in events[1].items() if name != "history"}
    own, read = answers(model, [json.dumps(events[0]), json.dumps(without)])
    np.testing.assert_allclose(own[SCORES], expected[:1][None], atol=1e-5)
    assert refusal(read)[0] == "unavailable"
    model.close()


@pytest.mark.slow
def test_an_event_is_read_by_the_version_that_has_to_answer(reported, events, monkeypatch):
    """Who has no key is the current version's, and what is no event is refused by it."""
    versions = reported.versions
    monkeypatch.setattr(versions.canary.encoder, "encode", lambda event: "of the canary")
    anybody = [*events, {**events[0], "user_id": None}, "text"]
    *found, nobody, refused = versions.encode_all(anybody)
    assert isinstance(refused, RequestError)
    assert nobody.version is versions.current and versions.current.number == 1
    for event, one in zip(events, found, strict=True):
        is_met = meets_canary(event["user_id"], Canary(2, 0.5))
        assert one.version is (versions.canary if is_met else versions.current)
        assert (one.event == "of the canary") == is_met
    assert len({one.version.number for one in found}) == 2
    alone = Versions(versions.current)
    assert {one.version.number for one in alone.encode_all(events)} == {1}
    assert alone.all == (versions.current,)


class UnreadableStore:
    """Has a history of nobody; cannot read those of some users."""

    def __init__(self, users):
        self.unreadable = {json.dumps(user) for user in users}

    def read_all(self, users, newest):
        gone = StoreError("redis://10.0.0.7: is gone")
        return [gone if user in self.unreadable else History([], []) for user in users]

    def close(self):
        """Nothing to close."""


@pytest.mark.slow
def test_a_history_that_cannot_be_read_and_a_call_that_ends_fail_alone(
    servable, events, monkeypatch
):
    users = [event["user_id"] for event in events[:6]]
    store = UnreadableStore(users[::3])
    monkeypatch.setattr(events_model, "open_store", lambda address, **more: store)
    model = EventsModel(ModelSettings(servable.path, histories="a store"))
    scored = model.versions.current.scorer
    score = scored.score_events
    without = [{k: v for k, v in e.items() if k != "history"} for e in events[:6]]
    found = answers(model, [json.dumps(event) for event in [*without, *events[:6]]])
    for index, one in enumerate(found[:6]):
        assert isinstance(one, UnavailableError) == (index % 3 == 0)
    code, message = refusal(found[0])
    assert code == "unavailable" and "10.0.0.7" not in message and "send it as" in message
    assert all(one[SCORES].size for one in found[6:])  # what a request brings is not read

    row = model.versions.current.encoder.users[0].look_up(users[3], "user_id")

    def broken(asked):
        if any(event.users["user_id"][0] == row for event in asked):
            raise ZeroDivisionError("at /secret/path")
        return score(asked)

    monkeypatch.setattr(scored, "score_events", broken)
    found = answers(model, [json.dumps(event) for event in events[:6]])
    model.close()
    for index, one in enumerate(found):
        assert isinstance(one, ZeroDivisionError) == (users[index] == users[3])
    code, message = refusal(found[3])
    assert code == "internal" and "/secret/path" not in message


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

    for name, of_seven, of_eight in (
        ("_total", 3, 1),
        ("_candidates_total", 4, 0),
        ("_unseen_users_total", 1, 0),  # 0, not unknown
        ("_unseen_candidates_total", 1, 0),
        ("_empty_histories_total", 1, 0),
        ("_call_seconds_count", 2, 1),
    ):
        assert (reported(name), reported(name, "8")) == (of_seven, of_eight), name
    assert reported("_call_seconds_sum") == pytest.approx(0.034)
    bounds = ("0.1", "0.3", "0.4", "0.9", "1.0", "+Inf")
    assert [reported("_scores_total", le=bound) for bound in bounds] == [2, 2, 3, 3, 4, 4]
    bounds = ("0.002", "0.005", "0.02", "0.05", "+Inf")
    assert [reported("_call_seconds_bucket", le=bound) for bound in bounds] == [0, 1, 1, 2, 2]
    assert [reported("_call_seconds_bucket", "8", le=bound) for bound in ("1.0", "+Inf")] == [0, 1]
