"""A real Triton on loopback: its answers are those of `score`."""

from __future__ import annotations

import json
import re
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
from browser import browse
from held_server import until
from triton_calls import infer, infer_events, is_counted, metric

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.serving.limits import Limits
from merlin_sim.serving.settings import ServerOptions
from merlin_sim.serving.signatures import one_user_batch, plain_batch
from merlin_sim.serving.triton.serve import Server
from merlin_sim.serving.triton.server_files import ServerFiles
from merlin_sim.serving.triton.triton_process import ServerError

pytest.importorskip("pytriton")
pytest.importorskip("tritonclient.http")
from tritonclient.utils import InferenceServerException  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PROTOCOLS = ["http", "grpc"]
FREE = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}


@pytest.fixture(scope="module")
def server(servable):
    """One server for all questions."""
    limits = Limits(max_candidates=80, max_history=200)
    with Server(servable, ServerOptions(**FREE, limits=limits, start_timeout=400)) as running:
        tree = psutil.Process(running.replicas.active.process.pid).children(recursive=True)
        assert tree
        yield running
        processes = [psutil.Process(running.replicas.active.process.pid), *tree]
    assert not [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_raw_events_get_the_scores_of_evaluate(server, protocol, events, expected):
    scores = infer_events(server, protocol, events)
    np.testing.assert_allclose(scores[:, 0], expected, atol=1e-5)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_events_of_one_request_may_have_any_number_of_candidates(
    server, protocol, events, scorer, encoder
):
    candidates = [event["candidates"][0] for event in events]
    mixed = [
        {**events[0], "candidates": candidates[:12]},
        {**events[1], "candidates": []},
        {**events[2], "candidates": candidates[:3]},
    ]
    scores = infer_events(server, protocol, mixed)
    expected = scorer.score_events([encoder.encode(encoder.parse(event)) for event in mixed])
    assert scores.shape == (3, 12)
    np.testing.assert_allclose(scores[0], expected[0], atol=1e-5)
    np.testing.assert_allclose(scores[2, :3], expected[2], atol=1e-5)
    assert (scores[1] == -1).all() and (scores[2, 3:] == -1).all()


def test_a_thousand_events_of_one_request_are_answered_in_order(server, events, expected):
    order = np.random.default_rng(1).integers(0, len(events), 1000)
    scores = infer_events(server, "grpc", [events[place] for place in order])
    np.testing.assert_allclose(scores[:, 0], np.asarray(expected)[order], atol=1e-5)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_too_large_to_be_answered_at_once_says_what_to_split(server, protocol, events):
    one, status = events[0], {"http": "413", "grpc": "StatusCode.INVALID_ARGUMENT"}[protocol]
    with pytest.raises(InferenceServerException) as error:
        infer_events(server, protocol, [one] * 4097)
    assert error.value.status() == status
    expected = {"http": "at most 4,096 events in a request", "grpc": "batch-size must be <= 4096"}
    assert expected[protocol] in str(error.value)
    wide = {**one, "candidates": one["candidates"][:1] * 80}  # 80 candidates are the limit
    scores = "at most 20,480 scores, .* 257 events"
    with pytest.raises(InferenceServerException, match=scores) as error:
        infer_events(server, protocol, [one] * 256 + [wide])
    assert error.value.status() == status
    assert infer_events(server, protocol, [one] * 255 + [wide]).shape == (256, 80)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_ids_get_the_scores_of_evaluate(server, protocol, events, encoder, expected):
    encoded = [encoder.encode(encoder.parse(event)) for event in events]
    rows = plain_batch(encoded, encoder.columns)
    scores = infer(server, protocol, "ids", rows, "score")
    assert scores.shape == (len(events), 1)
    np.testing.assert_allclose(scores[:, 0], expected, atol=1e-5)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_ids_of_one_user_go_with_all_candidates(server, protocol, events, encoder, scorer):
    candidates = [event["candidates"][0] for event in events[:20]]
    encoded = encoder.encode(encoder.parse({**events[0], "candidates": candidates}))
    one = infer(server, protocol, "ids", one_user_batch(encoded, encoder.columns), "score")
    plain = scorer.score_ids(plain_batch([encoded], encoder.columns))
    np.testing.assert_allclose(one[:, 0], plain, atol=1e-5)


def test_a_browser_is_shown_the_score_of_a_raw_event(server, servable, events, expected):
    event = {**events[0], "candidates": events[0]["candidates"][:1]}
    base = f"http://127.0.0.1:{server.http_port}/"
    page = browse(f"{base}?event={urllib.parse.quote(json.dumps(event))}")
    assert f"{servable.path.name} (sim)" in page and ">ready</span>" in page
    (score,) = re.findall(r"<td>(0\.\d{6})</td>", page)
    assert float(score) == pytest.approx(expected[0], abs=1e-5)
    for key in ("user_id", "history", "candidates"):
        assert f"&quot;{key}&quot;" in page or f'"{key}"' in page


def test_readiness_and_metadata(server, encoder):
    base = f"http://127.0.0.1:{server.http_port}/v2"
    for path in ("health/live", "health/ready", "models/ids/ready", "models/events/ready"):
        with urllib.request.urlopen(f"{base}/{path}", timeout=100) as response:
            assert response.status == 200
    with urllib.request.urlopen(f"{base}/models/ids", timeout=100) as response:
        inputs = {entry["name"] for entry in json.load(response)["inputs"]}
    assert inputs == set(encoder.columns.inputs)


def post(server, body, **headers):
    """Send a body as it is; gives status and answer."""
    url = f"http://127.0.0.1:{server.http_port}/v2/models/events/infer"
    request = urllib.request.Request(url, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=100) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_what_ended_triton_does_so_no_more(server, events, expected):
    """As a form it was copied to the stack twice; each level of nesting took some of it too."""
    text = json.dumps({**events[0], "padding": "x" * (5 << 20)})
    body = {"inputs": [{"name": "event", "shape": [1, 1], "datatype": "BYTES", "data": [text]}]}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    status, answer = post(server, json.dumps(body).encode(), **form)
    assert status == 200 and answer["outputs"][0]["data"] == pytest.approx([expected[0]], abs=1e-5)
    deep = (
        json.dumps(body).encode().replace(json.dumps([text]).encode(), b"[" * 10**6 + b"]" * 10**6)
    )
    status, answer = post(server, deep)
    assert status == 400 and "nested at most" in answer["error"]
    body["inputs"][0].update(shape=[2**62, 1], datatype="INT64", data=[1])
    status, answer = post(server, json.dumps(body).encode())
    assert status == 400 and "shape: expected as many elements" in answer["error"]
    assert server.replicas.active.process.ended() is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_answer_says_who_was_not_there_in_training(server, protocol, events, encoder):
    known = events[0]["candidates"][0]
    asked = [
        {**events[0], "candidates": [known, "nobody has it", known]},
        {**events[0], "user_id": "nobody", "candidates": [known]},
    ]
    unseen = infer_events(server, protocol, asked, "unseen_candidates")
    assert unseen.tolist() == [[False, True, False], [False, False, False]]
    assert infer_events(server, protocol, asked, "unseen_user").tolist() == [[False], [True]]


def test_of_several_events_the_bad_one_is_named_from_one(server, events):
    with pytest.raises(InferenceServerException, match="event 2: expected one JSON object"):
        infer_events(server, "http", [events[0], "nonsense"])


BAD_EVENTS = [
    ("nonsense", "expected one JSON object"),
    ({"user_id": "u", "history": []}, "expected the key 'candidates'"),
    ({"user_id": 5, "history": [], "candidates": ["x"]}, "user_id: expected a string"),
    ({"user_id": "u", "history": [], "candidates": ["x"] * 81}, "at most 80, received 81"),
    ({"user_id": "u", "history": ["x"] * 201, "candidates": []}, "at most 200, received 201"),
    ({"user_id": "\ud800", "history": [], "candidates": []}, "user_id: .* a lone surrogate"),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("event", "message"), BAD_EVENTS)
def test_a_malformed_event_is_told_what_is_wrong(server, protocol, event, message):
    with pytest.raises(InferenceServerException, match=message) as error:
        infer_events(server, protocol, [event])
    assert "Traceback" not in str(error.value)
    over_http = "413" if message.startswith("at most") else "400"
    expected = {"http": over_http, "grpc": "StatusCode.INVALID_ARGUMENT"}
    assert error.value.status() == expected[protocol]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update(user_id=t["user_id"] + 10**6), "user_id: expected ids from 0 to"),
        (lambda t: t.update(user_id=t["user_id"][:-1]), "rows of the user's columns"),
        (lambda t: t.update(item_id_pos__offsets=t["item_id_pos__offsets"] + 1), "offsets from 0"),
    ],
)
def test_malformed_ids_are_told_what_is_wrong(server, protocol, events, encoder, change, message):
    encoded = [encoder.encode(encoder.parse(event)) for event in events[:3]]
    tensors = plain_batch(encoded, encoder.columns)
    change(tensors)
    with pytest.raises(InferenceServerException, match=message):
        infer(server, protocol, "ids", tensors, "score")


def in_threads(calls):
    """Run calls at the same time; what each gave or raised."""
    together = threading.Barrier(len(calls))

    def run(call):
        together.wait(200)
        try:
            return call()
        except InferenceServerException as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def test_a_malformed_request_hurts_nobody_else(server, events, expected):
    def call(place):
        if place % 3 == 0:
            return lambda: infer_events(server, "grpc", [BAD_EVENTS[place % 5][0]])
        return lambda: infer_events(server, "grpc", [events[place]])

    results = in_threads([call(place) for place in range(24)])
    for place, result in enumerate(results):
        if place % 3 == 0:
            assert isinstance(result, InferenceServerException)
        else:
            np.testing.assert_allclose(result[0], expected[place], atol=1e-5)


@pytest.mark.parametrize("endpoint", ["ids", "events"])
def test_requests_that_come_together_are_scored_together(
    server, events, encoder, expected, endpoint
):
    encoded = [encoder.encode(encoder.parse(event)) for event in events]

    def call(place):
        if endpoint == "events":
            return lambda: infer_events(server, "grpc", [events[place]])
        rows = plain_batch([encoded[place]], encoder.columns)
        return lambda: infer(server, "grpc", "ids", rows, "score")

    names = {
        "ids": ("merlin_sim_ids_model_calls_total", "merlin_sim_ids_requests_total"),
        "events": ("nv_inference_exec_count", "nv_inference_request_success"),
    }
    of = {"ids": {"version": "1"}, "events": {"model": "events"}}[endpoint]
    call(0)()
    # A counter is there once something was counted, which is after the answer.
    until(lambda: all(is_counted(server, name, **of) for name in names[endpoint]))
    before = [metric(server, name, **of) for name in names[endpoint]]

    def counted(place):
        return metric(server, names[endpoint][place], **of) - before[place]

    calls = 0
    for _ in range(20):  # until some have met: each round sends a crowd
        results = in_threads([call(place) for place in range(24)])
        for place, result in enumerate(results):
            np.testing.assert_allclose(np.ravel(result), expected[place], atol=1e-5)
        calls += 24
        # A request is counted when it has been answered: one of the test before may be too.
        until(lambda calls=calls: counted(1) >= calls)
        if counted(0) < calls:
            break
    assert counted(0) < calls


def test_a_port_that_is_taken_is_reported(servable):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = f"`grpc_port` = {port}: another process listens on 127.0.0.1:{port}. .* 0 for a"
        with pytest.raises(ServerError, match=message):
            Server(servable, ServerOptions(**{**FREE, "grpc_port": port}))


@pytest.mark.parametrize("host", ["192.0.2.1", "no address"])
def test_a_host_that_is_not_this_machine_is_reported(servable, host):
    with pytest.raises(ServerError, match=f"`host` should be an address of this .*{host}"):
        Server(servable, ServerOptions(**FREE, host=host))


def test_servers_that_start_together_do_not_meet_in_shared_memory(servable):
    """With one prefix for all, about every second pair of them crashed or hung."""
    names = set()
    for _ in range(2):
        server = Server(servable, ServerOptions(**FREE))
        server._files = ServerFiles()
        try:
            for folder in (server._files.next_replica(), server._files.next_replica()):
                command = server._command(folder, "token")
                names |= {flag for flag in command if "shm-region-prefix-name" in flag}
        finally:
            server._files.remove()
    assert len(names) == 4


def test_options_are_checked_together():
    with pytest.raises(MerlinSimError) as error:
        ServerOptions(http_port=70000, grpc_port=5, metrics_port=5, exit_timeout=0)
    for problem in ("`http_port` = 70000", "different", "`metrics_port` = 5", "exit_timeout"):
        assert problem in str(error.value)
