"""What a server reads about the model `recommend`, and what stands between it and HTTP."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace

import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.requests import RequestError
from merlin_sim.serving.retrieval.endpoint import (
    LONGEST,
    RecommendEndpoint,
    RecommendRequest,
    read_request,
)

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


def test_what_cannot_score_is_refused(endpoint, ranker):
    rows = replace(ranker, manifest=of_rows(ranker))
    for wrong, message in [
        ((ranker, None, False), "need a store of histories"),
        ((rows, None, True), "expected a model of users with histories"),
        ((ranker, rows, True), "expected a model of users"),
    ]:
        with pytest.raises(MerlinSimError, match=message):
            endpoint.model(*wrong)


def of_rows(servable):
    return {**servable.manifest, "request": {"of": "rows", "columns": ["item_id_trgt"]}}


def test_rules_are_read_before_anything_is_started(towers, index_path, tmp_path):
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


def test_fewer_are_answered_unasked_where_fewer_are_retrieved():
    assert read_request('{"user": 1}', 5) == RecommendRequest(1, 5, {})
