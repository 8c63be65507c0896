"""Numbers of a dataset that no workflow made: a request has them as the model reads them."""

from __future__ import annotations

import numpy as np
import pytest

from merlin_sim.foundation.requests import RequestError
from merlin_sim.models import build_model
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.feature_spec import Chunk, Feature, FeatureSpec
from merlin_sim.schemas.merlin_schema import to_merlin_schema
from merlin_sim.serving.encoder import EventEncoder
from merlin_sim.serving.scorer import Scorer
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.texts import example_event
from merlin_sim.serving.triton.export import export_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servable(tmp_path_factory):
    features = {
        "click": Feature("int8"),
        "user": Feature("int64", 100),
        "book": Feature("int64", 500),
        "read": Feature("int64", 500, (20,)),
        "skipped": Feature("int64", 500, (20,)),
        "genres": Feature("int64", 9, (3,)),
        "age": Feature("float32"),
        "taste": Feature("float32", None, (2,)),
        "price": Feature("float32"),
        "cover": Feature("float32", None, (2,)),
    }
    channels = {
        "label": ("click",),
        "user_features": ("user",),
        "target_item_features": ("book",),
        "positive_history": ("read",),
        "negative_history": ("skipped",),
        "target_item_lists": ("genres",),
        "user_numerical": ("age", "taste"),
        "target_item_numerical": ("price", "cover"),
    }
    sources = {
        m: (Chunk("parquet", tuple(features), (f"{m}.parquet",)),) for m in ("train", "test")
    }
    spec = FeatureSpec(features, sources, channels)
    home = tmp_path_factory.mktemp("numbers")
    dataset = DatasetDirectory(home / "none", spec, to_merlin_schema(spec))
    model = build_model("din", dataset.schema, embedding_dim=4)
    return Servable.open(export_model(model, dataset, home / "servable", checkpoint={}))


@pytest.fixture(scope="module")
def encoder(servable):
    return EventEncoder(servable)


def book(key, **changes):
    return {"book": key, "genres": [2, 7], "price": 1.5, "cover": [0.5, -1], **changes}


def event_of(**changes):
    event = {"user": 7, "age": 0.3, "taste": [1, 2], "history": [3, 5]}
    return {**event, "candidates": [book(11), book(12, price=9, genres=[])], **changes}


def test_an_event_becomes_columns_of_their_shapes_and_so_does_the_example(servable, encoder):
    encoded = encoder.encode(encoder.parse(event_of()))
    assert encoded.users["taste"].tolist() == [[1, 2]] and encoded.users["age"].shape == (1,)
    assert encoded.targets["genres"].tolist() == [[2, 7, 0], [0, 0, 0]]
    assert encoded.targets["price"].tolist() == [1.5, 9]
    assert encoded.targets["cover"].dtype == np.float32
    example = example_event(encoder)
    assert set(example) == set(event_of())
    assert [set(item) for item in example["candidates"]] == [set(book(1))] * 2
    of_example = encoder.encode(encoder.parse(example))
    for one in (encoded, of_example):
        assert not one.unseen_user and not one.unseen_candidates.any()
    scorer = Scorer(servable)
    scores, of_example = scorer.score_events([encoded, of_example])
    assert np.isfinite(of_example).all() and len(of_example) == 2 and scores[0] != scores[1]
    scorer.one_user_from = 1
    np.testing.assert_allclose(scores, scorer.score_events([encoded])[0], atol=1e-6)
    none = encoder.encode(encoder.parse(event_of(candidates=[])))
    assert none.targets["cover"].shape == (0, 2) and none.targets["price"].shape == (0,)
    cells = {"user": "7", "age": "0.25", "taste": "1|2", "history": "3|5", "candidates": "[]"}
    fields = encoder.from_cells(cells)
    assert fields["age"] == 0.25 and fields["taste"] == [1, 2]


def test_all_that_is_missing_or_no_number_is_said_at_once(encoder):
    for event, reasons in (
        (event_of(age=None), ["age: expected a number, received None"]),
        (event_of(taste=3), ["taste: expected a list, received 3"]),
        (event_of(taste=[1]), ["taste: expected 2 numbers, received 1"]),
        (event_of(candidates=[book(1, cover=[1, "x"])]), ["candidates[0].cover[1]: expected a nu"]),
        (
            event_of(candidates=[{"book": 11, "price": 1}, book(3)]),
            [
                "candidates[0].genres: expected a list, received None; ",
                "candidates[0].cover: expected a list, received None",
            ],
        ),
    ):
        with pytest.raises(RequestError) as error:
            encoder.encode(encoder.parse(event))
        assert str(error.value).startswith("".join(reasons))
