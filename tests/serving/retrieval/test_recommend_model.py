"""What a server reads about the model `recommend`, and how it answers what waits together."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import count

import pytest
from counted import counting

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.requests import RequestError
from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.histories.store import StoreError, parse_interaction
from merlin_sim.serving.limits import UnavailableError
from merlin_sim.serving.retrieval import recommender
from merlin_sim.serving.retrieval.endpoint import (
    LONGEST,
    RecommendEndpoint,
    RecommendRequest,
    read_request,
)
from merlin_sim.serving.retrieval.index import open_index
from merlin_sim.serving.retrieval.recommend_model import Responder, count_stage
from merlin_sim.serving.retrieval.recommender import NEAREST, POPULAR, STAGES, Recommender
from merlin_sim.serving.retrieval.users import StoreHistories
from merlin_sim.serving.versions import Canary, meets_canary

model_config = pytest.importorskip("tritonclient.grpc.model_config_pb2")
text_format = pytest.importorskip("google.protobuf.text_format")


@pytest.fixture(scope="module")
def endpoint(towers, index_path, tmp_path_factory):
    rules = tmp_path_factory.mktemp("rules") / "rules.yaml"
    rules.write_text("caps: {cat_id: 2}")
    return RecommendEndpoint(towers.servable.path, index_path, rules, 400)


def test_what_whoever_reaches_a_model_may_read_says_nothing_of_what_it_answers_by(endpoint, ranker):
    model = endpoint.model(ranker, None, True)
    config = text_format.Parse(model.to_text(), model_config.ModelConfig())
    assert not config.parameters and config.name == "recommend"
    assert endpoint.settings["retrieved"] == 400 and endpoint.settings["rules"].endswith(".yaml")
    module, _, kind = model.worker.rpartition(".")
    assert hasattr(importlib.import_module(module), kind)


def test_what_cannot_score_or_rules_of_what_nobody_knows_are_refused_at_once(
    endpoint, ranker, towers, index_path, tmp_path
):
    of_rows = {**ranker.manifest, "request": {"of": "rows", "columns": ["item_id_trgt"]}}
    rows = replace(ranker, manifest=of_rows)
    for wrong, message in [
        ((ranker, None, False), "need a store of histories"),
        ((rows, None, True), "expected a model of users with histories"),
        ((ranker, rows, True), "expected a model of users"),
    ]:
        with pytest.raises(MerlinSimError, match=message):
            endpoint.model(*wrong)
    (tmp_path / "rules.yaml").write_text("caps: {colour: 2}")
    with pytest.raises(MerlinSimError, match="the column 'colour', of which nothing is known"):
        RecommendEndpoint(towers.servable.path, index_path, tmp_path / "rules.yaml", 500)


def test_a_body_is_a_text_for_triton_and_its_answer_a_body(endpoint):
    body = '{"user": "Ä"}'.encode()
    (tensor,) = json.loads(endpoint.ask(body))["inputs"]
    assert tensor["data"] == [body.decode()] and tensor["shape"] == [1, 1]
    content = json.dumps({"outputs": [{"name": "answer", "data": ['{"items": ["Ä"]}']}]})
    assert endpoint.body_of(content.encode()) == '{"items": ["Ä"]}'.encode()
    with pytest.raises(RequestError, match="expected UTF-8, found byte 0xff"):
        endpoint.ask(b'"\xff"')
    with pytest.raises(RequestError, match="at most 65,536 bytes, received 65,537"):
        endpoint.ask(b" " * 65_537)


RETRIEVED = 30


def test_what_is_not_said_is_as_documented():
    assert read_request(b'{"user": 7}', RETRIEVED) == RecommendRequest(7, 20, {})
    assert read_request('{"user": 1}', 5) == RecommendRequest(1, 5, {})
    facts = {"age": 17, "markets": ["DE", None], "is_new": True, "mass": 1.5}
    text = json.dumps({"user": "A", "top": 30, "facts": facts})
    assert read_request(text, RETRIEVED) == RecommendRequest("A", 30, facts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected one JSON object"),
        ("[]", "expected an object, received []"),
        ("{}", "expected the key 'user', received only: none"),
        ('{"user": 1, "number": 3}', "expected only user, top, facts, received 'number'"),
        ('{"user": null}', "user: expected a text or a whole number, received None"),
        ('{"user": true}', "user: expected a text or a whole number, received True"),
        (json.dumps({"user": "x" * 5000}), "user: expected a key of at most 4,096 characters"),
        ('{"user": "\\ud800"}', "user: expected text, received a lone surrogate"),
        ('{"user": 1, "facts": {"a": "\\ud800"}}', "facts: expected text, received a lone"),
        (
            '{"user": 1, "top": 31}',
            "top: expected a whole number from 1 to 30, as many items as are retrieved",
        ),
        ('{"user": 1, "top": 0}', "(`--retrieved`), received 0"),
        ('{"user": 1, "top": true}', "(`--retrieved`), received True"),
        ('{"user": 1, "top": 2.0}', "(`--retrieved`), received 2.0"),
        ('{"user": 1, "facts": [1]}', "facts: expected an object, received [1]"),
        ('{"user": 1, "facts": {"a": {}}}', "facts.a: expected a text, a number, a truth value"),
        ('{"user": 1, "facts": {"a": [[]]}}', "or a list of them, received [[]]"),
        (" " * (LONGEST + 1), "expected a request of at most 65,536 bytes, received 65,537"),
    ],
)
def test_what_is_wrong_is_reported(text, message):
    with pytest.raises(RequestError) as raised:
        read_request(text, RETRIEVED)
    assert message in str(raised.value)


USERS = [f"new {number}" for number in range(12)]
CANARY = Canary(8, 0.5)


@pytest.fixture
def store(tmp_path, towers):
    store = open_store(str(tmp_path / "store"), create=True)
    item = towers.catalogue.keys[5]
    store.append([parse_interaction({"user": user, "item": item}) for user in USERS])
    return store


@pytest.fixture
def responder(towers, index_path, store):
    index = open_index(index_path, towers)
    by_version = {
        version: Recommender(
            towers, index, retrieved=most, observe=lambda *s, v=version: count_stage(v, *s)
        )
        for version, most in ((7, 20), (8, 40))
    }
    kept = StoreHistories(store, towers.encoder)
    return Responder(kept, by_version, 7, CANARY, 500, names_version=True)


def respond(responder, texts):
    """Answer requests, all of which are counted."""
    return dict(responder.respond(texts, [True] * len(texts)))


def test_each_is_answered_by_its_version_and_counted(responder):
    counted = counting()
    texts = [json.dumps({"user": user, "top": 3}) for user in [*USERS, "nobody"]]
    texts[2:2] = ["nonsense"]
    found = respond(responder, texts)
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

    def reported_of(name, **labels):
        return counted(f"merlin_sim_recommend_{name}", **labels)

    for version, requests in answered.items():
        reported = partial(reported_of, version=str(version))
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
    assert reported_of("refused_total", version="7") == 1


def test_what_goes_wrong_with_one_is_not_the_others(responder, store, monkeypatch):
    """Whatever it is: a store that cannot be read, which is no fault of the request, or a fault."""
    texts = [json.dumps({"user": user}) for user in USERS]
    put, calls = recommender.put_in_order, count(1)  # from several threads
    read_all, unread = store.read_all, json.dumps(USERS[4])

    def broken(*arguments):
        if next(calls) == 2:
            raise ValueError("of no use")
        return put(*arguments)

    def read(users, newest):
        gone = StoreError("redis://10.0.0.7 is gone")
        pairs = zip(users, read_all(users, newest), strict=True)
        return [gone if user == unread else one for user, one in pairs]

    monkeypatch.setattr(recommender, "put_in_order", broken)
    monkeypatch.setattr(store, "read_all", read)
    found = respond(responder, texts)
    unavailable = found.pop(4)
    assert type(unavailable) is UnavailableError and "10.0.0.7" not in str(unavailable)
    wrong = [answer for answer in found.values() if isinstance(answer, Exception)]
    assert len(found) == len(USERS) - 1 and [str(error) for error in wrong] == ["of no use"]
