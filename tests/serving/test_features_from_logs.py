"""Numbers, lists and vectors the whole way: log, dataset, training, servable, scores of events."""

from __future__ import annotations

import json
import re
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from feature_logs import FEATURES, OPTIONS, feature_log, write_features
from in_process import run
from serving_process import reached, serving

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.requests import RequestError
from merlin_sim.models import build_model
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.serving.encoder import EventEncoder
from merlin_sim.serving.retrieval.items import Catalogue
from merlin_sim.serving.retrieval.recommender import Ranker
from merlin_sim.serving.retrieval.users import UserHistory
from merlin_sim.serving.scorer import Scorer
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.signatures import plain_batch
from merlin_sim.serving.texts import example_event
from merlin_sim.serving.triton.export import export_model, restore_model

pytestmark = pytest.mark.slow
MODEL = ("--model_type", "twin", "--embedding_dim", 4, "--long_seq_length", 8, "--top_k", 3)
TRAINING = ("--epochs", 1, "--global_batch_size", 64, "--lr", 0.02, "--seed", 3)


@pytest.fixture(scope="module")
def log():
    return feature_log()


@pytest.fixture(scope="module")
def walked(log, tmp_path_factory):
    """Dataset, checkpoints and servable, each by its command."""
    home = tmp_path_factory.mktemp("features")
    log.to_parquet(home / "log.parquet")
    scaled = FEATURES.replace("[NormalizeMinMax]", "[LogOp, NormalizeMinMax]")
    features = write_features(home / "features.yaml", scaled)
    labels = ("--label_column", "clicked", "--features", features)
    run("preprocess", "log", home / "log.parquet", "--output_path", home / "d", *OPTIONS, *labels)
    saved = ("--results_dir", home / "run", "--save_checkpoint_path", home / "run/checkpoints")
    run("train", "--dataset_dir", home / "d", *MODEL, *TRAINING, *saved)
    source = ("--load_checkpoint_path", home / "run/checkpoints", "--dataset_dir", home / "d")
    run("export", *source, "--output", home / "servable")
    return home


@pytest.fixture(scope="module")
def servable(walked):
    return Servable.open(walked / "servable")


@pytest.fixture(scope="module")
def encoder(servable):
    return EventEncoder(servable)


def event_of(log, who, candidates=None):
    """The user's last row as a request: everything as the log has it."""
    rows = log[log["who"] == who]
    last, before = rows.iloc[-1], rows[:-1]
    taken = before[before["clicked"] == 1]
    since = (last["when"] - taken["when"]).dt.total_seconds() / 3600
    age = last["age"]
    return {
        "who": who,
        "income": float(last["income"]),
        "age": None if np.isnan(age) else float(age),
        "place": float(last["place"]),
        "place_lag_1": float(before["place"].iloc[-1]),
        "place_lag_3": float(before["place"].iloc[-3]) if len(before) > 2 else None,
        "when": str(last["when"]),
        "history": taken["what"].tolist(),
        "when_since_pos": since.tolist(),
        "candidates": candidates or [last["what"]],
    }


@pytest.fixture(scope="module")
def expected(walked):
    """What the model itself gives the rows of test, by user."""
    dataset = DatasetDirectory.open(walked / "d")
    model = restore_model(CheckpointStore(walked / "run/checkpoints").load(), dataset)
    rows = pq.read_table(walked / "d/test").to_pandas()
    users = pd.read_parquet(walked / "d/categories/who.parquet").set_index("id")["key"]
    scores = model.predict(dataset, batch_size=16)[:, 0]
    return dict(zip(users.loc[rows["who"]], scores, strict=True))


def test_raw_events_get_the_scores_of_their_rows(walked, log, expected, tmp_path):
    lines = [json.dumps(event_of(log, who)) for who in expected]
    (tmp_path / "events.jsonl").write_text("\n".join(lines))
    output = tmp_path / "scores.parquet"
    run("score", walked / "servable", "--input", tmp_path / "events.jsonl", "--output", output)
    scored = pq.read_table(output).to_pydict()
    assert np.ptp(list(expected.values())) > 0.05
    np.testing.assert_allclose(
        [scores[0] for scores in scored["scores"]], list(expected.values()), atol=1e-5
    )


def with_times(log, event):
    """The event with the times of its interactions in place of their intervals."""
    rows = log[(log["who"] == event["who"])]
    taken = rows[:-1][rows[:-1]["clicked"] == 1]
    given = {name: value for name, value in event.items() if name != "when_since_pos"}
    return {**given, "history_times": [str(time) for time in taken["when"]]}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_times_are_read_as_the_workflow_reads_the_logs(walked, log, expected, kind, tmp_path):
    events = [with_times(log, event_of(log, who)) for who in list(expected)[:12]]
    source = tmp_path / f"events.{kind}"
    if kind == "jsonl":
        source.write_text("\n".join(json.dumps(event) for event in events))
    elif kind == "csv":
        frame = pd.DataFrame(events)
        for name in ("history", "candidates", "history_times"):
            frame[name] = ["|".join(map(str, values)) for values in frame[name]]
        frame.to_csv(source, index=False)
    else:
        for event in events:
            event["when"] = pd.Timestamp(event["when"])
            event["history_times"] = [pd.Timestamp(time) for time in event["history_times"]]
        pq.write_table(pa.Table.from_pylist(events), source)
    run("score", walked / "servable", "--input", source, "--output", tmp_path / "scores.parquet")
    scores = pq.read_table(tmp_path / "scores.parquet")["scores"].to_pylist()
    np.testing.assert_allclose([s[0] for s in scores], list(expected.values())[:12], atol=1e-5)


def test_the_example_of_a_model_is_scored(walked, tmp_path):
    line = run("score", walked / "servable", "--example")
    event = json.loads(line)
    assert set(event) == {
        "who", "income", "age", "place", "place_lag_1", "place_lag_3", "when",
        "history", "history_times", "candidates",
    }  # fmt: skip
    whole = event["candidates"][0]
    assert {"what", "brand", "price", "weight", "released", "genres", "look", "size"} == set(whole)
    assert len(whole["look"]) == 4 and all(genre[0] == "g" for genre in whole["genres"])
    (tmp_path / "event.jsonl").write_text(line)
    output = tmp_path / "scores.jsonl"
    source = ("--input", tmp_path / "event.jsonl")
    said = run("score", walked / "servable", *source, "--output", output)
    assert "1 events, 2 candidates scored" in said and "not there in training" not in said
    assert len(json.loads(output.read_text())["scores"]) == 2


def test_a_server_gives_the_same_of_events_and_of_columns(walked, encoder, log, expected):
    pytest.importorskip("pytriton")
    calls, errors = pytest.importorskip("triton_calls"), pytest.importorskip("tritonclient.utils")
    users = list(expected)[:6]
    events = [event_of(log, who) for who in users]
    with serving(walked / "servable") as process:
        server = reached(process)
        of_events = calls.infer_events(server, "http", events)[:, 0]
        tensors = plain_batch([encoder.encode(encoder.parse(e)) for e in events], encoder.columns)
        of_columns = calls.infer(server, "http", "ids", tensors, "score")[:, 0]
        reason = "place: expected a number of which LogOp, NormalizeMinMax makes a finite one"
        with pytest.raises(errors.InferenceServerException, match=reason) as refused:
            calls.infer_events(server, "http", [{**events[0], "place": -5}])
        assert refused.value.status() == "400"
        process.terminate()
        assert process.wait(200) == 0
    for scores in (of_events, of_columns):
        np.testing.assert_allclose(scores, [expected[who] for who in users], atol=1e-5)


def test_one_user_with_many_candidates_is_scored_as_rows_are(servable, encoder, log):
    who = log["who"].iloc[0]
    items = log["what"].unique().tolist()
    event = encoder.encode(encoder.parse(event_of(log, who, items)))
    together = Scorer(servable, one_user_from=2).score_events([event])[0]
    apart = Scorer(servable, one_user_from=None).score_events([event])[0]
    np.testing.assert_allclose(together, apart, atol=1e-5)
    assert np.ptp(together) > 0.01


def test_what_an_item_has_of_its_own_may_be_given(encoder, log):
    item = log.iloc[0]
    own = {"what": item["what"], "price": float(item["price"]), "genres": list(item["genres"])}
    own |= {"weight": float(item["weight"]), "released": str(item["released"])}
    own |= {"look": None if item["look"] is None else list(item["look"]), "size": item["size"]}
    event = event_of(log, item["who"], [item["what"], own, {"what": item["what"], "price": 9e3}])
    targets = encoder.encode(encoder.parse(event)).targets
    for name, values in targets.items():
        np.testing.assert_allclose(values[0], values[1], atol=1e-5, err_msg=name)
    assert targets["price_trgt"][2] > targets["price_trgt"][0]


def test_an_unseen_item_has_what_stands_for_missing_values(encoder, log):
    event = event_of(log, log["who"].iloc[0], ["never seen", {"what": "new", "price": None}])
    targets = encoder.encode(encoder.parse(event)).targets
    assert targets["price_trgt"][0] == targets["price_trgt"][1]
    assert not targets["look_trgt"].any() and not targets["genres"].any()
    assert not targets["weight_trgt"].any() and not targets["size_trgt"].any()


@pytest.fixture(scope="module")
def counted(log, walked, tmp_path_factory):
    """A log with encodings, as a servable whose model is not trained."""
    home = tmp_path_factory.mktemp("encodings")
    text = "encodings: {what: [count, recency], brand: [popularity, target, recency]}\n"
    text += "smoothing: 3\nfeatures:\n"
    text += "  place: {type: number, of: interaction, operators: [LogOp], lags: [1]}\n"
    text += "  weight: {type: number, of: item, operators: [Normalize, LogOp]}\n"
    text += "  price: {type: number, of: item, operators: [LogOp], buckets: 3}\n"
    log = log.assign(weight=log["weight"] + 5 * (log["what"] == "i0"))
    log.to_parquet(home / "log.parquet")
    features = ("--features", write_features(home / "f.yaml", text), "--label_column", "clicked")
    output = ("--output_path", home / "d")
    run("preprocess", "log", home / "log.parquet", *output, *OPTIONS, *features, "--fit_on", "all")
    dataset = DatasetDirectory.open(home / "d")
    model = build_model("din", dataset.schema, embedding_dim=4)
    export_model(model, dataset, home / "servable")
    return home


@pytest.fixture(scope="module")
def counting(counted):
    return EventEncoder(Servable.open(counted / "servable"))


CONTEXT = {"place": 2, "place_lag_1": 1}
RECENCIES = ["what_recency_trgt", "brand_recency_trgt"]


def test_a_request_counts_days_as_a_later_log_does(counted, counting, log):
    later = log.drop_duplicates(["who", "what"])
    later = later.assign(when=later["when"] + pd.Timedelta(10**6, "s"))
    later.to_parquet(counted / "later.parquet")
    output = ("--output_path", counted / "later", "--fitted", counted / "d", "--test_users", 0)
    run("preprocess", "log", counted / "later.parquet", *output, "--scheduler", "single")
    parts = [pq.read_table(counted / "later" / m).to_pandas() for m in ("train", "test")]
    keys = {
        name: pd.read_parquet(counted / f"d/categories/{name}.parquet").set_index("id")["key"]
        for name in ("who", "what")
    }
    when, of_last_day = later.set_index(["who", "what"])["when"], 0
    for row in pd.concat(parts).to_dict("records"):
        who, item = keys["who"][row["who"]], keys["what"][row["what_trgt"]]
        at = when[who, item]
        of_last_day += at.date() == log["when"].max().date()
        event = {"who": who, **CONTEXT, "when": str(at), "history": [], "candidates": [item]}
        targets = counting.encode(counting.parse(event)).targets
        assert [targets[name][0] for name in RECENCIES] == [row[name] for name in RECENCIES]
    assert of_last_day > 3


def days_before(log, when):
    """By key of items, log(1 + days) since it was seen on a day before."""
    days = log["when"].dt.floor("D")
    earlier = log.assign(day=days)[days < when.floor("D")].groupby("what")["day"].max()
    return np.log1p((when.floor("D") - earlier).dt.days)


def test_a_request_without_a_time_is_of_now(counting, log, monkeypatch):
    now = pd.Timestamp("2024-01-20 17:00:00")
    monkeypatch.setattr(time, "time", now.timestamp)
    items = log["what"].unique().tolist()
    event = {"who": "u1", **CONTEXT, "history": [], "candidates": [*items, "never seen"]}
    cells = {**event, "history": "", "candidates": "|".join(event["candidates"])}
    cells |= {name: str(value) for name, value in CONTEXT.items()}
    expected = [*days_before(log, now).loc[items], np.log1p(3650)]
    for one in (
        event,
        {**event, "when": None},
        {**event, "when": now.timestamp()},
        counting.from_cells(cells),
        counting.from_cells({**cells, "when": str(now)}),
    ):
        targets = counting.encode(counting.parse(one)).targets
        np.testing.assert_allclose(targets["what_recency_trgt"], expected, rtol=1e-6)
    with pytest.raises(RequestError, match="when: expected a date and time .* received 'soon'"):
        counting.parse({**event, "when": "soon"})
    assert "when" in example_event(counting)


def test_an_item_of_no_request_is_of_the_day_after_the_log(counted, counting, log):
    catalogue = Catalogue.of(Servable.open(counted / "servable"))
    found = counting.encode_items(np.arange(1, len(catalogue.keys)))
    expected = days_before(log, log["when"].max() + pd.Timedelta("1D")).loc[catalogue.keys[1:]]
    np.testing.assert_allclose(found["what_recency_trgt"], expected, rtol=1e-6)


def test_a_ranking_is_of_the_time_that_is_asked_for(counted, counting, log):
    servable = Servable.open(counted / "servable")
    catalogue = Catalogue.of(servable)
    ids, found = np.arange(1, len(catalogue.keys)), []
    for when in ("2024-01-13 00:00:00", "2024-03-01 00:00:00"):
        facts = {**CONTEXT, "when": when}
        found.append(Ranker(servable, catalogue).score(UserHistory({"who": "u1"}, []), ids, facts))
        event = {"who": "u1", **facts, "history": [], "candidates": catalogue.keys[ids].tolist()}
        (scores,) = Scorer(servable).score_events([counting.encode(counting.parse(event))])
        np.testing.assert_allclose(found[-1], scores, atol=1e-6)
    assert np.abs(np.subtract(*found)).max() > 1e-6


def test_a_request_gets_what_the_whole_log_said_of_its_keys(counting, log):
    who, item = log["who"].iloc[0], log["what"].iloc[0]
    brand = log["brand"].iloc[0]
    items = [item, {"what": "never seen", "brand": brand}, "never seen"]
    items[2] = {"what": "never seen", "brand": "nor this"}
    event = {"who": who, "place": 2, "place_lag_1": 1, "history": [item], "candidates": items}
    event = counting.parse(event)
    targets = counting.encode(event).targets
    shown = (log["what"] == item).sum()
    np.testing.assert_allclose(targets["what_count_trgt"], [np.log1p(shown), 0, 0], rtol=1e-5)
    prior, clicks = log["clicked"].mean(), log[log["brand"] == brand]["clicked"]
    share = (clicks.sum() + 3 * prior) / (len(clicks) + 3)
    np.testing.assert_allclose(targets["brand_target_trgt"], [share, share, prior], rtol=1e-5)


def test_of_a_key_that_no_item_has_any_more_nothing_is_known(log, tmp_path):
    """It is the one of the greatest id, and stood in the first row alone."""
    others = log["brand"].replace(log["brand"][0], "b0")
    changed = log.assign(brand=log["brand"].where(log.index == 0, others))
    changed.to_parquet(tmp_path / "log.parquet")
    text = "encodings: {brand: [count, recency]}"
    features = ("--features", write_features(tmp_path / "f.yaml", text), "--fit_on", "all")
    output = ("--output_path", tmp_path / "d")
    run("preprocess", "log", tmp_path / "log.parquet", *output, *OPTIONS, *features)
    dataset = DatasetDirectory.open(tmp_path / "d")
    model = build_model("din", dataset.schema, embedding_dim=4)
    encoder = EventEncoder(Servable.open(export_model(model, dataset, tmp_path / "servable")))
    candidate = {"what": "new", "brand": log["brand"][0]}
    event = {"who": "u1", "history": [], "candidates": [candidate]}
    targets = encoder.encode(encoder.parse(event)).targets
    assert targets["brand_trgt"][0] == dataset.schema["brand_trgt"].int_domain.max
    assert targets["brand_count_trgt"][0] == 0
    assert targets["brand_recency_trgt"][0] == np.float32(np.log1p(3650))


@pytest.mark.parametrize("value", [-5, "-1"])
@pytest.mark.parametrize(
    ("place", "operators"),
    [
        ("place", "LogOp"),
        ("place_lag_1", "LogOp"),
        ("candidates[1].weight", "Normalize, LogOp"),
        ("candidates[1].price", "LogOp"),
    ],
)
def test_a_number_that_operators_make_none_of_is_refused(place, operators, value, counting):
    event = {
        "who": "u1",
        "place": 2,
        "place_lag_1": 1,
        "history": [],
        "candidates": ["i1", {"what": "i2"}],
    }
    if "." in place:
        event["candidates"][1][place.split(".")[1]] = value
    else:
        event[place] = value
    reason = f"{place}: expected a number of which {operators} makes a finite one of 32 bits"
    with pytest.raises(RequestError, match=re.escape(f"{reason}, received {value!r}")):
        counting.encode(counting.parse(event))


def test_an_unseen_item_without_a_number_has_zero(counting):
    event = {
        "who": "u1",
        "place": 2,
        "place_lag_1": 1,
        "history": [],
        "candidates": [{"what": "new"}],
    }
    targets = counting.encode(counting.parse(event)).targets
    assert targets["weight_trgt"].tolist() == [0]


def test_a_moment_is_read_as_the_logs_timestamps_are(log, tmp_path):
    whole = log["when"].astype("datetime64[ns]").astype("int64") // 10**6
    log.assign(when=whole).to_parquet(tmp_path / "log.parquet")
    text = "features: {when: {type: time, of: interaction, cycles: [hour]}}\n"
    text += "timestamp_unit: ms"
    features = ("--features", write_features(tmp_path / "f.yaml", text))
    output = ("--output_path", tmp_path / "d")
    run("preprocess", "log", tmp_path / "log.parquet", *output, *OPTIONS, *features)
    dataset = DatasetDirectory.open(tmp_path / "d")
    model = build_model("din", dataset.schema, embedding_dim=4)
    servable = Servable.open(export_model(model, dataset, tmp_path / "servable"))
    encoder = EventEncoder(servable)
    rows = pq.read_table(tmp_path / "d/test").to_pandas()
    users = pd.read_parquet(tmp_path / "d/categories/who.parquet").set_index("id")["key"]
    for row in rows.head(6).to_dict("records"):
        who = users[row["who"]]
        moment = int(whole[log["who"] == who].iloc[-1])
        date = str(log[log["who"] == who]["when"].iloc[-1])
        for given in (moment, str(moment), date):
            event = {"who": who, "when": given, "history": ["i1"], "candidates": ["i2"]}
            found = encoder.encode(encoder.parse(event)).users
            assert found["when_hour_sin"][0] == pytest.approx(row["when_hour_sin"], abs=1e-6)
            assert found["when_hour_cos"][0] == pytest.approx(row["when_hour_cos"], abs=1e-6)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"place": None}, "place: expected a number"),
        ({"place": "near"}, "place: expected a number"),
        ({"when": "soon"}, "when: expected a date and time"),
        ({"income": "much"}, "income: expected a number, received 'much'"),
        (
            {"candidates": [{"what": "i1", "look": [1, 2]}]},
            r"candidates\[0\].look: expected 4 numbers",
        ),
        ({"candidates": [{"what": "i1", "colour": 1}]}, "expected only what, brand, weight"),
        ({"place": "\ud800"}, "place: expected text, received a lone surrogate"),
        ({"income": "\ud800"}, "income: expected text, received a lone surrogate"),
        ({"income": 2**70}, "income: expected a whole number of 64 bits"),
        ({"when": "\ud800"}, "when: expected text, received a lone surrogate"),
        (
            {"candidates": [{"what": "i1", "genres": ["g1", "\ud800"]}]},
            r"candidates\[0\].genres: expected text, received a lone surrogate",
        ),
    ],
)
def test_what_is_wrong_with_a_request_is_said(change, reason, encoder, log):
    event = {**event_of(log, log["who"].iloc[0]), **change}
    with pytest.raises(RequestError, match=reason):
        encoder.encode(encoder.parse(event))


def test_a_request_without_a_number_is_refused(encoder, log):
    event = event_of(log, log["who"].iloc[0])
    del event["place"]
    with pytest.raises(MerlinSimError, match="expected the key 'place'"):
        encoder.parse(event)


HOSTILE = ["\ud800", 2**70, 10**400, float("nan"), "", {}]


@pytest.mark.parametrize("value", HOSTILE, ids=ascii)
def test_whatever_stands_anywhere_is_read_or_refused(log, encoder, expected, value):
    """An event that ended otherwise would end those that are scored beside it."""
    event = event_of(log, next(iter(expected)))
    item = {"what": event["candidates"][0]}
    given = [{**event, name: value} for name in event]
    given += [
        {**event, "candidates": [{**item, name: value}]} for name in encoder.numbers.item_fields
    ]
    given += [{**event, name: [*event[name], value]} for name in ("history", "candidates")]
    given += [{**event, "when_since_pos": [value] * len(event["history"])}]
    timed = with_times(log, event)
    given += [{**timed, "history_times": [value] * len(event["history"])}, {**timed, "when": value}]
    for one in given:
        try:
            encoder.encode(encoder.parse(one))
        except RequestError as error:
            str(error).encode()
