"""What a server reads about the model `recommend`, and what stands between it and HTTP."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.retrieval.served.endpoint import RecommendEndpoint
from merlin_sim.serving.limits import Limits, RequestError
from merlin_sim.serving.scoring.canary import Canary
from merlin_sim.serving.triton.repository import Served

model_config = pytest.importorskip("tritonclient.grpc.model_config_pb2")
text_format = pytest.importorskip("google.protobuf.text_format")


@pytest.fixture(scope="module")
def endpoint(towers, index_path, tmp_path_factory):
    rules = tmp_path_factory.mktemp("rules") / "rules.yaml"
    rules.write_text("caps: {cat_id: 2}")
    return RecommendEndpoint(towers.servable.path, index_path, rules, 400)


def test_a_version_has_its_ranker_and_the_canarys(endpoint, ranker, other_ranker, tmp_path):
    served = Served(ranker, Limits(50, 60), 7, (Canary(8, 0.25), other_ranker), "redis://here")
    endpoint.write(served, tmp_path)
    config = text_format.Parse(
        (tmp_path / "recommend/config.pbtxt").read_text(), model_config.ModelConfig()
    )
    told = {name: value.string_value for name, value in config.parameters.items()}
    assert told["servable"] == str(ranker.path) and told["canary"] == str(other_ranker.path)
    assert (told["canary_version"], told["canary_share"]) == ("8", "0.25")
    assert (told["max_candidates"], told["candidates"], told["histories"]) == (
        "50",
        "400",
        "redis://here",
    )
    assert told["has_versions"] and told["rules"].endswith("rules.yaml")
    model = (tmp_path / "recommend/7/model.py").read_text()
    assert "from merlin_sim.retrieval.served.recommend_model import TritonPythonModel" in model


def test_what_cannot_score_is_refused(endpoint, ranker, tmp_path):
    served = Served(ranker, Limits(), histories="store")
    rows = replace(ranker, manifest=of_rows(ranker))
    for wrong, message in [
        (replace(served, histories=None), "need a store of histories"),
        (replace(served, servable=rows), "expected a model of users with histories"),
        (replace(served, canary=(Canary(2, 0.5), rows)), "expected a model of users"),
    ]:
        with pytest.raises(MerlinSimError, match=message):
            endpoint.write(wrong, tmp_path)
    assert not list(tmp_path.iterdir())


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
    assert endpoint.tell(content.encode()) == '{"items": ["Ä"]}'.encode()
    with pytest.raises(RequestError, match="expected UTF-8, found byte 0xff"):
        endpoint.ask(b'"\xff"')
    with pytest.raises(RequestError, match="at most 65,536 bytes, received 65,537"):
        endpoint.ask(b" " * 65_537)
