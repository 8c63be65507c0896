"""The whole way: log, dataset, training, a servable that is moved, a server with nothing else.

The log has numbers, lists, vectors, moments in milliseconds, and the context of interactions.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
import urllib.error
import urllib.request
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from evaluated import evaluation_of
from feature_logs import FEATURES, OPTIONS, dataset_of, feature_log, write_features
from in_process import run
from serving_process import reached, serving
from triton_calls import inputs_of

from merlin_sim.foundation.requests import RequestError
from merlin_sim.models import build_model
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.serving.encoder import EventEncoder
from merlin_sim.serving.score_file import score_file
from merlin_sim.serving.scorer import Scorer
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.signatures import plain_batch
from merlin_sim.serving.triton import export
from merlin_sim.serving.triton.export import export_model, restore_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
MODEL = ("--model_type", "twin", "--embedding_dim", 4, "--long_seq_length", 8, "--top_k", 3)
TRAINING = ("--epochs", 1, "--global_batch_size", 64, "--lr", 0.02, "--seed", 3)
TOKEN = "0123456789abcdef-of-the-clients"
ALLOWED = {"authorization": f"Bearer {TOKEN}"}
METRICS = ("auc", "log_loss", "gauc", "calibration_error")
CONTEXT = """
  device: {type: category, of: interaction}
  hour: {type: number, of: interaction, buckets: [6, 12, 18]}
timestamp_unit: ms
time_intervals: hours"""


@pytest.fixture(scope="module")
def log():
    found, random = feature_log(), np.random.default_rng(5)
    device = np.array(["phone", "tv"])[random.integers(0, 2, len(found))]
    return found.assign(device=device, hour=random.integers(0, 24, len(found)).astype(float))


def milliseconds(times):
    return times.astype("datetime64[ns]").astype("int64") // 10**6


@pytest.fixture(scope="module")
def walked(log, tmp_path_factory):
    """Every step by its command; the servable is elsewhere then, and the rest put away."""
    home = tmp_path_factory.mktemp("home")
    work = home / "work"
    work.mkdir()
    log.assign(when=milliseconds(log["when"])).to_parquet(work / "log.parquet")
    text = FEATURES.replace("[NormalizeMinMax]", "[LogOp, NormalizeMinMax]")
    features = write_features(
        work / "features.yaml", text.replace("\ntime_intervals: hours", CONTEXT)
    )
    labels = ("--label_column", "clicked", "--features", features)
    run("preprocess", "log", work / "log.parquet", "--output_path", work / "d", *OPTIONS, *labels)
    saved = ("--results_dir", work / "run", "--save_checkpoint_path", work / "run/checkpoints")
    run("train", "--dataset_dir", work / "d", *MODEL, *TRAINING, *saved)
    source = ("--load_checkpoint_path", work / "run/checkpoints", "--dataset_dir", work / "d")
    run("export", *source, "--output", work / "servable")
    (home / "elsewhere").mkdir()
    (work / "servable").rename(home / "elsewhere/model")
    work.rename(home / "put away")
    return SimpleNamespace(servable=home / "elsewhere/model", work=work, kept=home / "put away")


@pytest.fixture(scope="module")
def servable(walked):
    return Servable.open(walked.servable)


@pytest.fixture(scope="module")
def encoder(servable):
    return EventEncoder(servable)


@pytest.fixture(scope="module")
def scorer(servable):
    return Scorer(servable)


def event_of(log, who, candidates=None):
    """The user's last row as a request: everything as the log has it."""
    rows = log[log["who"] == who]
    last, before = rows.iloc[-1], rows[:-1]
    taken = before[before["clicked"] == 1]
    since = (last["when"] - taken["when"]).dt.total_seconds() / 3600
    return {
        "who": who,
        "income": float(last["income"]),
        "age": None if np.isnan(last["age"]) else float(last["age"]),
        "place": float(last["place"]),
        "place_lag_1": float(before["place"].iloc[-1]),
        "place_lag_3": float(before["place"].iloc[-3]) if len(before) > 2 else None,
        "device": last["device"],
        "hour": last["hour"],
        "when": str(last["when"]),
        "history": taken["what"].tolist(),
        "when_since_pos": since.tolist(),
        "candidates": candidates or [last["what"]],
    }


@pytest.fixture(scope="module")
def rows(walked):
    return pq.read_table(walked.kept / "d/test").to_pandas()


@pytest.fixture(scope="module")
def expected(walked, rows):
    """What the model itself gives the rows of test, by user, in their order."""
    dataset = DatasetDirectory.open(walked.kept / "d")
    model = restore_model(CheckpointStore(walked.kept / "run/checkpoints").load(), dataset)
    users = pd.read_parquet(walked.kept / "d/categories/who.parquet").set_index("id")["key"]
    scores = model.predict(dataset, batch_size=16)[:, 0]
    return dict(zip(users.loc[rows["who"]], scores, strict=True))


@pytest.fixture(scope="module")
def evaluation(walked, expected):
    """What the run evaluated and logged."""
    found = json.loads((walked.kept / "run/evaluation.json").read_text())
    logged = json.loads((walked.kept / "run/log.json").read_text().splitlines()[-1])
    assert found["rows"] == len(expected) > 20
    assert_same({name: logged[f"test_{name}"] for name in METRICS}, found)
    return found


def assert_same(found, wanted):
    """Metrics agree where scores differ in their last digit.

    The AUC counts scores between thresholds: one that falls on the other side of its threshold
    moves it by half a pair, of which there are about a thousand here.
    """
    for name in METRICS:
        assert found[name] == pytest.approx(wanted[name], abs=5e-4), name
    assert found["log_loss"] == pytest.approx(wanted["log_loss"], abs=1e-6)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of this machine's loopback, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    words = ["-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = [str(folder / name) for name in ("certificate", "key")]
    command = ["openssl", "req", "-x509", *words, "-out", made[0], "-keyout", made[1]]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made


@pytest.fixture(scope="module")
def server(walked, certificate, tmp_path_factory):
    """A server with nothing but the servable, a token and certificates; it listens everywhere."""
    pytest.importorskip("pytriton")
    elsewhere = walked.servable.parent
    assert not walked.work.exists()
    token = tmp_path_factory.mktemp("token") / "token"
    token.touch(0o600)
    token.write_text(f"{TOKEN}\n")
    words = ["--host", "0.0.0.0", "--token_file", str(token), "--no_standby"]
    words += ["--tls_certificate", certificate[0], "--tls_key", certificate[1]]
    environment = {"PATH": os.environ["PATH"], "HOME": str(elsewhere)}
    with serving(walked.servable, *words, cwd=elsewhere, env=environment) as process:
        ports = reached(process)
        ports.process = psutil.Process(process.pid)
        yield ports
        children = ports.process.children(recursive=True)
        process.kill()
        _, alive = psutil.wait_procs(children, timeout=100)
        assert len(children) > 2 and not alive


def ask(server, certificate, path, body=None, headers=ALLOWED, port=None):
    """Ask over TLS; the status, and what was answered."""
    context = ssl.create_default_context(cafile=certificate[0])
    url = f"https://127.0.0.1:{port or server.http_port}{path}"
    request = urllib.request.Request(url, body and json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=100, context=context) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def ask_for_scores(server, certificate, events):
    """Send raw events over HTTP; the status, and the document that was answered."""
    texts = [json.dumps(event) for event in events]
    tensor = {"name": "event", "shape": [len(texts), 1], "datatype": "BYTES", "data": texts}
    document = {"inputs": [tensor], "outputs": [{"name": "scores"}]}
    status, found = ask(server, certificate, "/v2/models/events/infer", document)
    return status, json.loads(found)


@pytest.fixture(scope="module")
def client(server, certificate):
    """A client of the server over gRPC."""
    module = pytest.importorskip("tritonclient.grpc")
    address = f"localhost:{server.grpc_port}"
    encrypted = {"ssl": True, "root_certificates": certificate[0]}
    with module.InferenceServerClient(address, **encrypted) as made:
        yield made


def test_what_a_server_answers_are_the_scores_that_the_run_evaluated(
    walked, server, certificate, client, encoder, log, rows, expected, evaluation
):
    events = [event_of(log, who) for who in expected]
    status, found = ask_for_scores(server, certificate, events)
    assert status == 200
    of_events = np.array(found["outputs"][0]["data"])
    tensors = plain_batch([encoder.encode(encoder.parse(e)) for e in events], encoder.columns)
    answered = client.infer("ids", inputs_of(tensors), headers=ALLOWED)
    of_columns = answered.as_numpy("score")[:, 0]
    status, found = ask_for_scores(server, certificate, [{**events[0], "place": -5}])
    reason = "place: expected a number of which LogOp, NormalizeMinMax makes a finite one"
    assert status == 400 and reason in found["error"]
    for scores in (of_events, of_columns):
        np.testing.assert_allclose(scores, [*expected.values()], atol=1e-5)
        assert_same(evaluation_of(rows["label"], scores, rows["who"]).to_dict(), evaluation)
    for path in walked.servable.rglob("*"):  # nothing in it says where it came from
        assert path.is_dir() or str(walked.work).encode() not in path.read_bytes(), path.name


def test_without_a_token_nothing_is_answered_but_whether_it_is_ready(
    server, certificate, client, log
):
    refused = pytest.importorskip("tritonclient.utils").InferenceServerException
    assert ask(server, certificate, "/v2/health/ready", headers={})[0] == 200
    ports = dict.fromkeys(("/", "/v2", "/v2/models/events"), server.http_port)
    for path, port in {**ports, "/metrics": server.metrics_port}.items():
        assert ask(server, certificate, path, headers={}, port=port)[0] == 401
        assert ask(server, certificate, path, port=port)[0] == 200
    text = json.dumps(event_of(log, log["who"].iloc[0]))
    inputs = inputs_of({"event": np.array([[text]], object)})
    assert client.is_server_ready()
    for headers in ({}, {"authorization": "Bearer wrong"}):
        with pytest.raises(refused, match="Bearer TOKEN"):
            client.infer("events", inputs, headers=headers)
    assert client.infer("events", inputs, headers=ALLOWED).as_numpy("scores").size == 1
    with pytest.raises(refused, match="not allowed"):
        client.unload_model("events", headers=ALLOWED)


def test_nothing_is_answered_without_encryption_nor_over_grpc_to_other_machines(server):
    with pytest.raises((OSError, http.client.HTTPException)):
        urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/v2", timeout=60)
    grpc = pytest.importorskip("grpc")
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        with pytest.raises(grpc.FutureTimeoutError):
            grpc.channel_ready_future(channel).result(timeout=1)
    listening = {
        one.laddr.port: one.laddr.ip
        for one in server.process.net_connections("tcp")
        if one.status == psutil.CONN_LISTEN
    }
    assert listening[server.http_port] == "0.0.0.0"
    assert listening[server.grpc_port].removeprefix("::ffff:") == "127.0.0.1"
    # Nor is there a tensor in what listens: it starts sooner.
    assert not [one for one in server.process.memory_maps() if "pywrap_tensorflow" in one.path]
    for process in server.process.children(recursive=True):  # Triton's are sockets in a folder
        assert not process.net_connections("tcp")


def with_times(log, event):
    """The event with the times of its interactions in place of their intervals."""
    rows = log[(log["who"] == event["who"])][:-1]
    given = {name: value for name, value in event.items() if name != "when_since_pos"}
    return {**given, "history_times": rows[rows["clicked"] == 1]["when"].tolist()}


@pytest.mark.parametrize("kind", ["dates.jsonl", "milliseconds.jsonl", "text.csv", "parquet"])
def test_raw_events_get_the_scores_of_their_rows(
    log, encoder, scorer, servable, expected, kind, tmp_path
):
    """A moment and times are read as the workflow reads the log's, ready intervals as they are."""
    users = list(expected)[: None if kind == "dates.jsonl" else 12]
    events = [with_times(log, event_of(log, who)) for who in users]
    for event in events:
        event["when"] = pd.Timestamp(event["when"])
        if kind != "parquet":
            as_given = str if kind == "dates.jsonl" else lambda time: time.value // 10**6
            event["when"] = as_given(event["when"])
            event["history_times"] = [as_given(time) for time in event["history_times"]]
    source, output = tmp_path / f"events.{kind}", tmp_path / "scores.parquet"
    if kind == "text.csv":
        frame = pd.DataFrame(events)
        for name in ("history", "candidates", "history_times"):
            frame[name] = ["|".join(map(str, values)) for values in frame[name]]
        frame.to_csv(source, index=False)
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(events), source)
    else:
        source.write_text("\n".join(map(json.dumps, events)))
    if kind == "dates.jsonl":
        run("score", servable.path, "--input", source, "--output", output)
    else:
        score_file(scorer, encoder, source, output)
    scores = [one for (one,) in pq.read_table(output)["scores"].to_pylist()]
    np.testing.assert_allclose(scores, [expected[who] for who in users], atol=1e-5)
    assert np.ptp([*expected.values()]) > 0.05


def test_the_example_of_a_model_is_scored(servable, scorer, encoder):
    event = json.loads(run("score", servable.path, "--example"))
    assert set(event) == {
        "who", "income", "age", "place", "place_lag_1", "place_lag_3", "device", "hour", "when",
        "history", "history_times", "candidates",
    }  # fmt: skip
    whole = event["candidates"][0]
    assert {"what", "brand", "price", "weight", "released", "genres", "look", "size"} == set(whole)
    assert len(whole["look"]) == 4 and all(genre[0] == "g" for genre in whole["genres"])
    encoded = encoder.encode(encoder.parse(event))
    assert not encoded.unseen_user and not encoded.unseen_candidates.any()
    (scores,) = scorer.score_events([encoded])
    assert len(scores) == 2


def test_one_user_with_many_candidates_is_scored_as_rows_are(scorer, encoder, log, monkeypatch):
    items = log["what"].unique().tolist()
    event = encoder.encode(encoder.parse(event_of(log, log["who"].iloc[0], items)))
    monkeypatch.setattr(scorer, "one_user_from", 2)
    together = scorer.score_events([event])[0]
    scorer.one_user_from = None
    apart = scorer.score_events([event])[0]
    np.testing.assert_allclose(together, apart, atol=1e-5)
    assert np.ptp(together) > 0.01


@pytest.fixture(scope="module")
def towers(log, tmp_path_factory):
    """Towers that are not trained, of a log with contexts alone."""
    home = tmp_path_factory.mktemp("towers")
    plain, text = log.drop(columns=["genres", "look"]), CONTEXT.partition("timestamp")[0]
    dataset = dataset_of(plain, home, f"features:{text}", "--label_column", "clicked")
    model = build_model("two_tower", dataset.schema, embedding_dim=4)
    with mock.patch.object(export, "save_served_model"):  # its graph is not what this is about
        found = Servable.open(export_model(model, dataset, home / "servable"), with_model=False)
    return EventEncoder(found), model


@pytest.mark.parametrize("model_type", ["twin", "two_tower"])
def test_a_context_counts_and_one_that_nobody_had_is_as_one_that_is_missing(
    encoder, scorer, log, model_type, request
):
    event = event_of(log, log["who"].iloc[0])
    devices = ["phone", "tv", "a device that nobody had", "another one", None]
    events = [{**event, "device": device} for device in devices]
    if model_type == "two_tower":
        encoder, model = request.getfixturevalue("towers")
        encoded = [encoder.encode(encoder.parse(one)) for one in events]
        columns = plain_batch(encoded, encoder.columns)
        found = model.forward({n: tf.constant(v) for n, v in columns.items()}).logits.numpy()
    else:
        found = scorer.score_events([encoder.encode(encoder.parse(one)) for one in events])
    phone, tv, unknown, other, missing = (scores[0] for scores in found)
    assert phone != tv and unknown not in (phone, tv)
    assert unknown == other == missing  # id 0


def test_what_an_item_has_of_its_own_may_be_given_and_is_missing_of_an_unseen_one(encoder, log):
    item = log.iloc[0]
    own = {"what": item["what"], "price": float(item["price"]), "genres": list(item["genres"])}
    own |= {"weight": float(item["weight"]), "size": item["size"]}
    own |= {"released": str(item["released"])}
    own |= {"look": None if item["look"] is None else list(item["look"])}
    dear = {"what": item["what"], "price": 9e3}
    unseen = ["never seen", {"what": "new", "price": None}]
    event = event_of(log, item["who"], [item["what"], own, dear, *unseen])
    targets = encoder.encode(encoder.parse(event)).targets
    for name, values in targets.items():
        np.testing.assert_allclose(values[0], values[1], atol=1e-5, err_msg=name)
    price = targets["price_trgt"]
    assert price[2] > price[0] and price[3] == price[4]
    for name in ("look_trgt", "genres", "weight_trgt", "size_trgt"):
        assert not targets[name][3:].any(), name


def test_what_an_item_does_not_bring_is_looked_up_whatever_the_file(scorer, encoder, log, tmp_path):
    """In parquet an item has a null for each field that another item brings."""
    own = {"genres": ["g1"], "look": [1.0, 2.0, 3.0, 4.0], "price": 9e3, "released": "2021-01-01"}
    event = event_of(log, log["who"].iloc[0], [{"what": "i2"}, {"what": "new", **own}])
    (tmp_path / "events.jsonl").write_text(json.dumps(event))
    pq.write_table(pa.Table.from_pylist([event]), tmp_path / "events.parquet")
    scores = []
    for kind in ("jsonl", "parquet"):
        score_file(scorer, encoder, tmp_path / f"events.{kind}", tmp_path / f"{kind}.parquet")
        scores += pq.read_table(tmp_path / f"{kind}.parquet")["scores"].to_pylist()
    assert scores[0] == scores[1]


def test_an_item_without_any_of_a_list_may_bring_an_empty_one(encoder, log):
    for none in ([], [None], ""):
        event = event_of(log, log["who"].iloc[0], ["i2", {"what": "i2", "genres": none}])
        genres = encoder.encode(encoder.parse(event)).targets["genres"]
        assert genres[0].any() and not genres[1].any()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"place": ...}, "expected the key 'place'"),
        ({"place": None}, "place: expected a number"),
        ({"place": "near"}, "place: expected a number"),
        ({"when": "soon"}, "when: expected a date and time"),
        ({"income": "much"}, "income: expected a number, received 'much'"),
        ({"look": [1, 2]}, r"candidates\[0\].look: expected 4 numbers"),
        ({"colour": 1}, "expected only what, brand, weight"),
        ({"place": "\ud800"}, "place: expected text, received a lone surrogate"),
        ({"income": "\ud800"}, "income: expected text, received a lone surrogate"),
        ({"income": 2**70}, "income: expected a whole number of 64 bits"),
        ({"when": "\ud800"}, "when: expected text, received a lone surrogate"),
        ({"genres": ["g1", "\ud800"]}, r"candidates\[0\].genres: expected text, received a lone"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(change, reason, encoder, log):
    event = event_of(log, log["who"].iloc[0])
    changed = {**event, **change}
    if not set(change) <= set(event):
        changed = {**event, "candidates": [{"what": "i1", **change}]}
    changed = {name: value for name, value in changed.items() if value is not ...}
    with pytest.raises(RequestError, match=reason):
        encoder.encode(encoder.parse(changed))


@pytest.mark.parametrize("value", ["\ud800", 2**70, 10**400, float("nan"), "", {}, [[]]], ids=ascii)
def test_whatever_stands_anywhere_is_read_or_refused(log, encoder, value):
    """An event that ended otherwise would end those that are scored beside it."""
    event = event_of(log, log["who"].iloc[0])
    item, timed = {"what": event["candidates"][0]}, with_times(log, event)
    several = [value] * len(event["history"])
    given = [{**event, name: value} for name in event]
    given += [
        {**event, "candidates": [{**item, name: value}]} for name in encoder.numbers.item_fields
    ]
    given += [{**event, name: [*event[name], value]} for name in ("history", "candidates")]
    given += [{**event, "when_since_pos": several}]
    given += [{**timed, "history_times": several}, {**timed, "when": value}]
    refused = 0
    for one in [event, *given]:
        try:
            encoder.encode(encoder.parse(one))
        except RequestError as error:
            assert str(error).encode()
            refused += 1
    assert 0 < refused <= len(given), "the event as it was is read"
