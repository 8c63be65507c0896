"""Requests that wait together, each answered by its version, whatever is wrong with the others."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from itertools import count

import pytest
from counted import counting

from merlin_sim.foundation.requests import RequestError
from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.histories.store import History, StoreError, parse_interaction
from merlin_sim.serving.limits import UnavailableError
from merlin_sim.serving.retrieval.index import open_index
from merlin_sim.serving.retrieval.recommend_model import Responder, count_stage
from merlin_sim.serving.retrieval.recommender import NEAREST, POPULAR, STAGES, Recommender
from merlin_sim.serving.retrieval.users import StoreHistories
from merlin_sim.serving.versions import Canary, meets_canary

USERS = [f"new {number}" for number in range(12)]
CANARY = Canary(8, 0.5)


class BrokenStore:
    """Cannot read some users; knows nothing of the others."""

    def read_all(self, users, newest):
        gone = StoreError("redis://10.0.0.7 is gone")
        return [gone if "A" in user else History([], []) for user in users]


@pytest.fixture
def make(towers, index_path):
    index = open_index(index_path, towers)

    def make(store, retrieved=(20, 40)):
        by_version = {
            version: Recommender(
                towers, index, retrieved=most, observe=lambda *s, v=version: count_stage(v, *s)
            )
            for version, most in zip((7, 8), retrieved, strict=True)
        }
        kept = StoreHistories(store, towers.encoder)
        return Responder(kept, by_version, 7, CANARY, 500, names_version=True)

    return make


def respond(responder, texts):
    """Answer requests, all of which are counted."""
    return responder.respond(texts, [True] * len(texts))


@pytest.fixture
def store(tmp_path, towers):
    store = open_store(str(tmp_path / "store"), create=True)
    item = towers.catalogue.keys[5]
    store.append([parse_interaction({"user": user, "item": item}) for user in USERS])
    return store


def test_each_is_answered_by_its_version_and_counted(make, store, towers):
    counted = counting()
    texts = [json.dumps({"user": user, "top": 3}) for user in [*USERS, "nobody"]]
    texts[2:2] = ["nonsense"]
    found = dict(respond(make(store), texts))
    assert sorted(found) == list(range(len(texts)))
    refused = found.pop(2)
    assert isinstance(refused, RequestError) and "expected one JSON object" in str(refused)
    for answer in found.values():
        assert answer["version"] == (8 if meets_canary(answer["user"], CANARY) else 7)
        assert answer["source"] == (POPULAR if answer["user"] == "nobody" else NEAREST)
        assert len(answer["items"]) == 3
        if answer["source"] == NEAREST:
            assert answer["retrieved"] == {7: 21, 8: 41}[answer["version"]]
    answered = Counter(answer["version"] for answer in found.values())
    assert min(answered.values()) >= 3
    for version, requests in answered.items():
        reported = partial(_reported, counted, version=str(version))
        assert reported("requests_total") == requests
        assert reported("seconds_bucket", le="+Inf") == reported("seconds_count") == requests
        assert reported("items_total") == 3 * requests
        assert reported("unseen_users_total") == requests
        some = sum(answer["version"] == version for answer in found.values()
                   if answer["source"] == NEAREST)  # fmt: skip
        assert reported("empty_histories_total") == requests - some
        for stage in STAGES:
            least = reported("stage_seconds_bucket", le="+Inf", stage=stage)
            assert least == (requests if stage in ("filter", "order") else some)
    assert _reported(counted, "refused_total", version="7") == 1


def _reported(counted, name, **labels):
    return counted(f"merlin_sim_recommend_{name}", **labels)


def test_a_store_that_cannot_be_read_is_no_fault_of_the_request(make):
    texts = [json.dumps({"user": user}) for user in ("A", "B", "A1")]
    found = dict(respond(make(BrokenStore()), texts))
    for place in (0, 2):
        assert type(found[place]) is UnavailableError and "10.0.0.7" not in str(found[place])
    assert found[1]["source"] == POPULAR


def test_what_goes_wrong_with_one_is_not_the_others(make, store, monkeypatch):
    """Whatever it is."""
    responder = make(store)
    score = Recommender._choose
    calls = count(1)  # from several threads

    def broken(self, *arguments):
        if next(calls) == 2:
            raise ValueError("of no use")
        return score(self, *arguments)

    monkeypatch.setattr(Recommender, "_choose", broken)
    found = dict(respond(responder, [json.dumps({"user": user}) for user in USERS]))
    wrong = [answer for answer in found.values() if isinstance(answer, Exception)]
    assert len(found) == len(USERS) and [str(error) for error in wrong] == ["of no use"]
