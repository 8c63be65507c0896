"""What a whole log said of keys, as a request gets it: counts, shares of clicks, days."""

from __future__ import annotations

import asyncio
import json
import re
import time

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from feature_logs import dataset_of, feature_log
from in_process import run
from prometheus_client import CollectorRegistry

from merlin_sim.foundation.requests import RequestError
from merlin_sim.models import build_model
from merlin_sim.serving.appends import Appends
from merlin_sim.serving.encoder import EventEncoder
from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.retrieval.items import Catalogue
from merlin_sim.serving.retrieval.recommender import Ranker
from merlin_sim.serving.retrieval.users import UserHistory
from merlin_sim.serving.scorer import Scorer
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.texts import example_event
from merlin_sim.serving.triton import export
from merlin_sim.serving.triton.export import export_model

pytestmark = pytest.mark.slow
FEATURES = """
encodings: {what: [count, recency], brand: [count, popularity, target, recency, recent_popularity]}
smoothing: 3
features:
  place: {type: number, of: interaction, operators: [LogOp], lags: [1]}
  wait: {type: number, of: interaction, operators: [FillMedian, LogOp], lags: [1]}
  weight: {type: number, of: item, operators: [Normalize, LogOp]}
  price: {type: number, of: item, operators: [LogOp], buckets: 3}
"""
CONTEXT = {"place": 2, "place_lag_1": 1, "wait": 3, "wait_lag_1": 5}
OF_LATE = ["what_recency_trgt", "brand_recency_trgt", "brand_recent_popularity_trgt"]
LONG_AGO = np.log1p(3650)


@pytest.fixture(scope="module")
def log():
    """One item is far heavier than the others, and of some rows it is not known how long."""
    found = feature_log()
    wait = found["place"].where(found.index % 3 > 0) + 4
    return found.assign(weight=found["weight"] + 5 * (found["what"] == "i0"), wait=wait)


@pytest.fixture(scope="module")
def home(log, tmp_path_factory):
    """The log's dataset, and a servable whose model is not trained."""
    home = tmp_path_factory.mktemp("encodings")
    dataset = dataset_of(log, home, FEATURES, "--label_column", "clicked", "--fit_on", "all")
    export_model(build_model("din", dataset.schema, embedding_dim=4), dataset, home / "servable")
    return home


@pytest.fixture(scope="module")
def servable(home):
    return Servable.open(home / "servable")


@pytest.fixture(scope="module")
def encoder(servable):
    return EventEncoder(servable)


def event_of(candidates, **more):
    return {"who": "u1", **CONTEXT, "history": [], "candidates": candidates, **more}


def targets_of(encoder, event):
    return encoder.encode(encoder.parse(event)).targets


def test_a_request_counts_days_as_a_later_log_does(home, encoder, log):
    later = log.drop_duplicates(["who", "what"])
    later = later.assign(when=later["when"] + pd.Timedelta(10**6, "s"))
    later.to_parquet(home / "later.parquet")
    output = ("--output_path", home / "later", "--fitted", home / "d", "--test_users", 0)
    run("preprocess", "log", home / "later.parquet", *output, "--scheduler", "single")
    parts = [pq.read_table(home / "later" / m).to_pandas() for m in ("train", "test")]
    keys = {
        name: pd.read_parquet(home / f"d/categories/{name}.parquet").set_index("id")["key"]
        for name in ("who", "what")
    }
    when, of_last_day = later.set_index(["who", "what"])["when"], 0
    for row in pd.concat(parts).to_dict("records"):
        who, item = keys["who"][row["who"]], keys["what"][row["what_trgt"]]
        at = when[who, item]
        of_last_day += at.date() == log["when"].max().date()
        targets = targets_of(encoder, event_of([item], who=who, when=str(at)))
        assert [targets[name][0] for name in OF_LATE] == [row[name] for name in OF_LATE]
    assert of_last_day > 3


def days_before(log, when):
    """By key of items, log(1 + days) since it was seen on a day before."""
    days = log["when"].dt.floor("D")
    earlier = log.assign(day=days)[days < when.floor("D")].groupby("what")["day"].max()
    return np.log1p((when.floor("D") - earlier).dt.days)


def test_a_request_without_a_time_is_of_now(encoder, log, monkeypatch):
    now = pd.Timestamp("2024-01-20 17:00:00")
    monkeypatch.setattr(time, "time", now.timestamp)
    items = log["what"].unique().tolist()
    event = event_of([*items, "never seen"])
    cells = {**event, "history": "", "candidates": "|".join(event["candidates"])}
    cells |= {name: str(value) for name, value in CONTEXT.items()}
    expected = [*days_before(log, now).loc[items], LONG_AGO]
    for one in (
        event,
        {**event, "when": None},
        {**event, "when": now.timestamp()},
        encoder.from_cells(cells),
        encoder.from_cells({**cells, "when": str(now)}),
    ):
        found = targets_of(encoder, one)["what_recency_trgt"]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    with pytest.raises(RequestError, match="when: expected a date and time .* received 'soon'"):
        encoder.parse({**event, "when": "soon"})
    assert "when" in example_event(encoder)


def test_a_ranking_is_of_the_time_that_is_asked_for_or_of_the_day_after_the_log(
    servable, encoder, log
):
    catalogue = Catalogue.of(servable)
    ids, found = np.arange(1, len(catalogue.keys)), []
    scorer, ranker = Scorer(servable), Ranker(servable, catalogue)
    for when in ("2024-01-13 00:00:00", "2024-03-01 00:00:00"):
        found.append(ranker.score(UserHistory({"who": "u1"}, []), ids, {**CONTEXT, "when": when}))
        event = event_of(catalogue.keys[ids].tolist(), when=when)
        (scores,) = scorer.score_events([encoder.encode(encoder.parse(event))])
        np.testing.assert_allclose(found[-1], scores, atol=1e-6)
    assert np.abs(np.subtract(*found)).max() > 1e-6
    of_no_request = encoder.encode_items(ids)["what_recency_trgt"]
    expected = days_before(log, log["when"].max() + pd.Timedelta("1D")).loc[catalogue.keys[1:]]
    np.testing.assert_allclose(of_no_request, expected, rtol=1e-6)


def test_a_request_gets_what_the_whole_log_said_of_its_keys(encoder, log):
    item, brand = log["what"].iloc[0], log["brand"].iloc[0]
    candidates = [item, *({"what": "never seen", "brand": b} for b in (brand, "nor this"))]
    targets = targets_of(encoder, event_of(candidates))
    shown = (log["what"] == item).sum()
    np.testing.assert_allclose(targets["what_count_trgt"], [np.log1p(shown), 0, 0], rtol=1e-5)
    prior, clicks = log["clicked"].mean(), log[log["brand"] == brand]["clicked"]
    share = (clicks.sum() + 3 * prior) / (len(clicks) + 3)
    np.testing.assert_allclose(targets["brand_target_trgt"], [share, share, prior], rtol=1e-5)
    assert targets["weight_trgt"][1] == 0


def test_of_a_key_that_no_item_has_any_more_nothing_is_known(log, tmp_path, monkeypatch):
    """It is the one of the greatest id, and stood in the first row alone."""
    others = log["brand"].replace(log["brand"][0], "b0")
    changed = log.assign(brand=log["brand"].where(log.index == 0, others))
    text = "encodings: {brand: [count, recency]}"
    dataset = dataset_of(changed, tmp_path, text, "--fit_on", "all")
    model = build_model("din", dataset.schema, embedding_dim=4)
    monkeypatch.setattr(export, "save_served_model", lambda *_: None)  # it is not asked
    path = export_model(model, dataset, tmp_path / "servable")
    encoder = EventEncoder(Servable.open(path, with_model=False))
    candidate = {"what": "new", "brand": log["brand"][0]}
    event = {"who": "u1", "history": [], "candidates": [candidate]}
    targets = targets_of(encoder, event)
    assert targets["brand_trgt"][0] == dataset.schema["brand_trgt"].int_domain.max
    assert targets["brand_count_trgt"][0] == 0
    assert targets["brand_recency_trgt"][0] == np.float32(LONG_AGO)


@pytest.mark.parametrize(
    ("place", "operators"),
    [
        ("place", "LogOp"),
        ("place_lag_1", "LogOp"),
        ("candidates[1].weight", "Normalize, LogOp"),
        ("candidates[1].price", "LogOp"),
    ],
)
def test_a_number_that_operators_make_none_of_is_refused(place, operators, encoder):
    for value in (-5, "-1"):
        event = event_of(["i1", {"what": "i2"}])
        if "." in place:
            event["candidates"][1][place.split(".")[1]] = value
        else:
            event[place] = value
        reason = f"{place}: expected a number of which {operators} makes a finite one of 32 bits"
        with pytest.raises(RequestError, match=re.escape(f"{reason}, received {value!r}")):
            encoder.encode(encoder.parse(event))


def test_an_earlier_value_may_be_missing_or_none(home, encoder, log):
    users = pd.read_parquet(home / "d/categories/who.parquet").set_index("id")["key"]
    rows = pq.read_table(home / "d/test").to_pandas()
    given = {who: waits.iloc[-2] for who, waits in log.groupby("who")["wait"]}
    for value, expected in zip(users.loc[rows["who"]].map(given), rows["wait_lag_1"], strict=True):
        as_json = "nan" if np.isnan(value) else value
        for one in {value, as_json, str(value)}:
            event = encoder.parse(event_of(["i1"], wait_lag_1=one))
            assert encoder.encode(event).users["wait_lag_1"] == [expected]
    assert sum(map(np.isnan, given.values())) > 3 and (rows["wait_lag_1"] > 1).all()
    event = encoder.parse(event_of(["i1"], wait_lag_1=None))
    assert encoder.encode(event).users["wait_lag_1"] == [0]


@pytest.mark.parametrize("price", ["dear", -5, "12.5"])
def test_an_interaction_is_kept_if_its_event_can_be_read(price, servable, tmp_path):
    store = open_store(str(tmp_path / "store"), create=True)
    item = {"what": "i1", "price": price}
    appends = Appends.of(servable, store, CollectorRegistry())
    status, answer = asyncio.run(appends.answer(json.dumps({"user": "u1", "item": item}).encode()))
    encoder = EventEncoder(servable, histories=store)
    event = {"who": "u1", **CONTEXT, "candidates": ["i1"]}
    histories = encoder.encode(encoder.parse(event)).histories
    assert len(histories["what_pos"]) == (price == "12.5")
    assert status == (200 if price == "12.5" else 400)
    assert status == 200 or answer["error"].startswith("item.price: expected a number")
