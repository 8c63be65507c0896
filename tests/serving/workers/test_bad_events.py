"""One bad event costs no other its answer, in whatever mode a server is run."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from merlin_sim.foundation.requests import RequestError
from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.histories.store import History, StoreError
from merlin_sim.serving.limits import UnavailableError
from merlin_sim.serving.settings import LogSettings, ModelSettings
from merlin_sim.serving.versions import Canary
from merlin_sim.serving.workers import events_model
from merlin_sim.serving.workers.events_model import EventsModel
from merlin_sim.serving.workers.protocol import EVENT, SCORES
from merlin_sim.serving.workers.worker import Request, refusal

pytestmark = pytest.mark.slow

HOSTILE = st.one_of(
    st.sampled_from(["\ud800", "a\udfffb", "\0", "", 2**63, 2**70, -(2**70), 1e400, float("nan")]),
    st.sampled_from([None, True, [], {}, [[]], {"item_id": "\ud800"}, {"\ud800": 1}, 10**400]),
    st.text(st.characters(codec=None), max_size=4),
    st.integers(),
    st.floats(),
)
"""What an event may have anywhere; half of a pair of surrogates is among all of it."""
PLACES = ("user_id", "history", "candidates", "in history", "in candidates", "beside", "whole")


def changed(event, place, value):
    """The text of an event with something hostile in it."""
    found = {**event, "history": [*event["history"]], "candidates": [*event["candidates"]]}
    if place == "whole":
        return json.dumps(value)
    if place == "beside":
        return json.dumps({**found, str(value): value})
    if place.startswith("in "):
        found[place.removeprefix("in ")].append(value)
    else:
        found[place] = value
    return json.dumps(found)


class UnreadableStore:
    """Has a history of nobody; cannot read those of every third user."""

    def __init__(self, users):
        self.unreadable = {json.dumps(user) for user in users}

    def read_all(self, users, newest):
        gone = StoreError("redis://10.0.0.7: is gone")
        return [gone if user in self.unreadable else History([], []) for user in users]

    def close(self):
        """Nothing to close."""


@pytest.fixture(scope="module", params=["plain", "canary and histories"])
def reported(request, servable, second, tmp_path_factory):
    """The model `events`, as the server was told to have it."""
    home = tmp_path_factory.mktemp("model")
    more = {}
    if "canary" in request.param:
        more |= {"version": 1, "canary": Canary(2, 0.5), "canary_servable": second}
    if "histories" in request.param:
        open_store(str(home / "store"), create=True).close()
        more["histories"] = str(home / "store")
    log = LogSettings(home / "log", log_share=1.0)
    log.make_directory()
    found = EventsModel(ModelSettings(servable.path, log=log, **more))
    yield found
    found.close()


def answers(model, texts):
    """What each request of one event gets, all of them taken together."""
    found = {}
    requests = [
        Request({EVENT: np.array([[text.encode()]], object)}, frozenset({SCORES})) for text in texts
    ]

    def reply(place, result):
        assert place not in found
        found[place] = result

    model.take(requests, reply)
    assert len(found) == len(texts)
    return [found[place] for place in range(len(texts))]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_good_are_answered_beside_whatever_comes(reported, events, data):
    good = [json.dumps(event) for event in events[:6]]
    bad = [
        changed(events[7], data.draw(st.sampled_from(PLACES)), data.draw(HOSTILE)) for _ in range(3)
    ]
    places = data.draw(st.permutations(range(9)))
    together = [([*good, *bad])[place] for place in places]
    found = dict(zip(places, answers(reported, together), strict=True))
    for place, alone in enumerate(answers(reported, good)):
        np.testing.assert_allclose(found[place][SCORES], alone[SCORES], atol=1e-5)
    for place in range(6, 9):
        if isinstance(found[place], Exception):
            assert isinstance(found[place], RequestError), repr(found[place])
            code, message = refusal(found[place])
            assert code == "invalid" and message.encode()


def test_a_user_whose_history_cannot_be_read_fails_alone(servable, events, monkeypatch):
    users = [event["user_id"] for event in events[:6]]
    store = UnreadableStore(users[::3])
    monkeypatch.setattr(events_model, "open_store", lambda address, **more: store)
    model = EventsModel(ModelSettings(servable.path, histories="a store"))
    try:
        without = [{k: v for k, v in e.items() if k != "history"} for e in events[:6]]
        found = answers(model, [json.dumps(event) for event in [*without, *events[:6]]])
    finally:
        model.close()
    for place, one in enumerate(found[:6]):
        assert isinstance(one, UnavailableError) == (place % 3 == 0)
    code, message = refusal(found[0])
    assert code == "unavailable" and "10.0.0.7" not in message and "send it as" in message
    assert all(one[SCORES].size for one in found[6:])  # what a request brings is not read


def test_what_ends_a_call_of_the_model_is_refused_alone(servable, events, monkeypatch):
    model = EventsModel(ModelSettings(servable.path))
    scored = model.versions.current.scorer
    score = scored.score_events
    evil = model.versions.current.encoder.parse(events[3]).users["user_id"]
    row = model.versions.current.encoder.users[0].look_up(evil, "user_id")

    def broken(asked):
        if any(event.users["user_id"][0] == row for event in asked):
            raise ZeroDivisionError("at /secret/path")
        return score(asked)

    monkeypatch.setattr(scored, "score_events", broken)
    try:
        found = answers(model, [json.dumps(event) for event in events[:6]])
    finally:
        model.close()
    for place, one in enumerate(found):
        is_same = events[place]["user_id"] == events[3]["user_id"]
        assert isinstance(one, ZeroDivisionError) == is_same
    code, message = refusal(found[3])
    assert code == "internal" and "/secret/path" not in message
