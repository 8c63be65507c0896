"""A real Triton on loopback: its answers are those of `score`, whatever ends or hangs meanwhile."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import psutil
import pytest
from asking import Asking, until_more_came
from held_server import until
from triton_calls import infer, infer_events, is_counted, metric

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.serving.limits import Limits
from merlin_sim.serving.settings import ServerOptions
from merlin_sim.serving.signatures import one_user_batch, plain_batch
from merlin_sim.serving.triton.serve import Server
from merlin_sim.serving.triton.triton_process import GRPC_SOCKET, HTTP, TOKEN_HEADER, ServerError
from merlin_sim.serving.workers.protocol import WORKER_NAME, processes_of

pytest.importorskip("pytriton")
pytest.importorskip("tritonclient.http")
import tritonclient.grpc as triton  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PROTOCOLS = ["http", "grpc"]
FREE = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}


def fork_server():
    """The process from which the models of this process' server are forked."""
    module = "merlin_sim.serving.workers.fork_server"
    (found,) = (one for one in psutil.Process().children() if module in one.cmdline())
    return found


@pytest.fixture(scope="module")
def server(servable):
    """One server for all questions; of whatever it has started nothing is left."""
    limits = Limits(max_candidates=80, max_history=200)
    with Server(servable, ServerOptions(**FREE, limits=limits, start_timeout=400)) as running:
        yield running
        left = [
            process
            for pid in (running.replicas.active.process.pid, fork_server().pid)
            for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))
        ]
    _, alive = psutil.wait_procs(left, timeout=60)
    assert len(left) > 3 and not alive


@pytest.fixture(scope="module")
def encoded(events, encoder):
    return [encoder.encode(encoder.parse(event)) for event in events]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_events_get_the_scores_of_evaluate_and_say_who_was_not_there_in_training(
    server, protocol, events, scorer, encoder, expected
):
    order = np.random.default_rng(1).integers(0, len(events), 1000)
    scores = infer_events(server, protocol, [events[index] for index in order])
    np.testing.assert_allclose(scores[:, 0], np.asarray(expected)[order], atol=1e-5)
    candidates = [event["candidates"][0] for event in events]
    mixed = [
        {**events[0], "candidates": candidates[:12]},
        {**events[1], "candidates": []},
        {**events[2], "candidates": [candidates[0], "nobody has it", candidates[0]]},
        {**events[2], "user_id": "nobody", "candidates": candidates[:1]},
    ]
    scores = infer_events(server, protocol, mixed)
    of_each = scorer.score_events([encoder.encode(encoder.parse(event)) for event in mixed])
    assert scores.shape == (4, 12)
    for row, own in zip(scores, of_each, strict=True):
        np.testing.assert_allclose(row[: len(own)], own, atol=1e-5)
        assert (row[len(own) :] == -1).all()
    unseen = infer_events(server, protocol, mixed[2:], "unseen_candidates")
    assert unseen.tolist() == [[False, True, False], [False, False, False]]
    unseen = infer_events(server, protocol, mixed[2:], "unseen_user")
    assert unseen.tolist() == [[False], [True]]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_ids_get_the_scores_of_evaluate_and_what_is_wrong_with_them_is_said(
    server, protocol, events, encoded, encoder, expected, scorer
):
    scores = infer(server, protocol, "ids", plain_batch(encoded, encoder.columns), "score")
    assert scores.shape == (len(events), 1)
    np.testing.assert_allclose(scores[:, 0], expected, atol=1e-5)
    candidates = [event["candidates"][0] for event in events[:20]]
    wide = encoder.encode(encoder.parse({**events[0], "candidates": candidates}))
    one = infer(server, protocol, "ids", one_user_batch(wide, encoder.columns), "score")
    plain = scorer.score_ids(plain_batch([wide], encoder.columns))
    np.testing.assert_allclose(one[:, 0], plain, atol=1e-5)
    sound = plain_batch(encoded[:3], encoder.columns)
    offsets = "item_id_pos__offsets"
    for name, wrong, message in (
        ("user_id", sound["user_id"] + 10**6, "user_id: expected ids from 0 to"),
        ("user_id", sound["user_id"][:-1], "rows of the user's columns"),
        (offsets, sound[offsets] + 1, "offsets from 0"),
    ):
        with pytest.raises(InferenceServerException, match=message):
            infer(server, protocol, "ids", {**sound, name: wrong}, "score")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_malformed_or_too_large_request_is_answered_what_is_wrong(server, protocol, events):
    one = events[0]
    wide = {**one, "candidates": one["candidates"][:1] * 80}  # 80 candidates are the limit
    many = {"http": "at most 4,096 events in a request", "grpc": "batch-size must be <= 4096"}
    for asked, message, over_http in (
        (["nonsense"], "expected one JSON object", "400"),
        ([one, "nonsense"], "event 2: expected one JSON object", "400"),
        ([{"user_id": "u", "history": []}], "expected the key 'candidates'", "400"),
        ([{**one, "user_id": 5}], "user_id: expected a string", "400"),
        ([{**one, "user_id": "\ud800"}], "user_id: .* a lone surrogate", "400"),
        ([{**one, "candidates": ["x"] * 81}], "at most 80, received 81", "413"),
        ([{**one, "history": ["x"] * 201}], "at most 200, received 201", "413"),
        ([one] * 4097, many[protocol], "413"),
        ([one] * 256 + [wide], "at most 20,480 scores, .* 257 events", "413"),
    ):
        with pytest.raises(InferenceServerException, match=message) as error:
            infer_events(server, protocol, asked)
        assert "Traceback" not in str(error.value)
        expected = {"http": over_http, "grpc": "StatusCode.INVALID_ARGUMENT"}
        assert error.value.status() == expected[protocol]
    assert infer_events(server, protocol, [one] * 255 + [wide]).shape == (256, 80)


def ask(server, method, path, body=None, **headers):
    """Send a body as it is; gives status and answer."""
    url = f"http://127.0.0.1:{server.http_port}{path}"
    request = urllib.request.Request(url, body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=100) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_readiness_metadata_and_what_ended_triton(server, encoder, events, expected):
    for path in ("health/live", "health/ready", "models/ids/ready", "models/events/ready"):
        assert ask(server, "GET", f"/v2/{path}")[0] == 200
    inputs = json.loads(ask(server, "GET", "/v2/models/ids")[1])["inputs"]
    assert {entry["name"] for entry in inputs} == set(encoder.columns.inputs)
    # As a form a body was copied to the stack twice; each level of nesting took some of it too.
    text = json.dumps({**events[0], "padding": "x" * (5 << 20)})
    tensor = {"name": "event", "shape": [1, 1], "datatype": "BYTES", "data": [text]}
    body = json.dumps({"inputs": [tensor]}).encode()
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    status, answer = ask(server, "POST", "/v2/models/events/infer", body, **form)
    assert status == 200
    (scores,) = [one for one in json.loads(answer)["outputs"] if one["name"] == "scores"]
    assert scores["data"] == pytest.approx([expected[0]], abs=1e-5)
    deep = body.replace(json.dumps([text]).encode(), b"[" * 10**6 + b"]" * 10**6)
    claims = {**tensor, "shape": [2**62, 1], "datatype": "INT64", "data": [1]}
    for body, said in (
        (deep, b"nested at most"),
        (json.dumps({"inputs": [claims]}).encode(), b"shape: expected as many elements"),
    ):
        status, answer = ask(server, "POST", "/v2/models/events/infer", body)
        assert status == 400 and said in answer
    assert server.replicas.active.process.ended() is None


OVER_HTTP = """
POST /v2/repository/index
POST /v2/repository/models/events/load
POST /v2/repository/models/events/unload
GET /v2/models/events/config
GET /v2/models/events/stats
GET /v2/models/stats
GET /v2/systemsharedmemory/status
POST /v2/systemsharedmemory/region/a/register
POST /v2/systemsharedmemory/unregister
GET /v2/cudasharedmemory/status
POST /v2/cudasharedmemory/region/a/register
GET /v2/trace/setting
POST /v2/trace/setting
POST /v2/models/events/trace/setting
GET /v2/logging
POST /v2/logging
"""
OVER_GRPC = [
    lambda client: client.get_model_repository_index(),
    lambda client: client.load_model("events"),
    lambda client: client.load_model("events", files={"file:1/model.py": b""}, config="{}"),
    lambda client: client.unload_model("events"),
    lambda client: client.get_model_config("events"),
    lambda client: client.get_inference_statistics(),
    lambda client: client.get_system_shared_memory_status(),
    lambda client: client.register_system_shared_memory("a", "/a", 9),
    lambda client: client.get_cuda_shared_memory_status(),
    lambda client: client.get_trace_settings(),
    lambda client: client.update_trace_settings(settings={}),
    lambda client: client.get_log_settings(),
    lambda client: client.update_log_settings({}),
]


def behind(server, method, path, headers=()):
    """Ask Triton itself, on its socket."""
    connection = http.client.HTTPConnection("triton", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(server.replicas.active.folder / HTTP))
    try:
        connection.request(method, path, b"{}" if method == "POST" else None, dict(headers))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_nobody_manages_it(server):
    """Models are code: nobody who reaches the server can give it any."""
    tree = psutil.Process(server.replicas.active.process.pid)
    for process in (tree, *tree.children(recursive=True)):  # Triton listens on sockets in a folder
        assert not process.net_connections("tcp")
    for line in OVER_HTTP.split("\n")[1:-1]:
        method, path = line.split()
        assert ask(server, method, path, b"{}" if method == "POST" else None)[0] in (404, 405)
        # Nor is that all that stands before it.
        status, reported = behind(server, method, path)
        assert status == 403 and b"restricted" in reported
    address = f"unix:{server.replicas.active.folder / GRPC_SOCKET}"
    with (
        triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client,
        triton.InferenceServerClient(address) as behind_the_front,
    ):
        assert client.is_server_live()
        for call in OVER_GRPC:
            with pytest.raises(InferenceServerException, match="not allowed"):
                call(client)
            with pytest.raises(InferenceServerException, match="This protocol is restricted"):
                call(behind_the_front)
    token = server.replicas.active.token  # which is nowhere to be read
    assert behind(server, "POST", "/v2/repository/index", {TOKEN_HEADER: token})[0] == 200
    for process in psutil.process_iter():
        try:
            assert token not in " ".join(process.cmdline())
        except psutil.Error:
            continue  # it has ended


def test_each_model_is_loaded_twice_and_no_more(server):
    """Once where it answers, and once where it stands by."""

    def four_of_each() -> bool:  # the standby's may come later, those of an ended one go later
        tree = psutil.Process().children(recursive=True)
        try:
            stubs = [one for one in tree if "python_backend_stub" in " ".join(one.cmdline())]
            workers = [one for one in tree if one.name() == WORKER_NAME]
            flags = {word for one in tree for word in one.cmdline() if "shm-region-prefix" in word}
        except psutil.NoSuchProcess:  # a helper of a start, gone since
            return False
        return len(stubs) == len(workers) == 4 and len(flags) == 2  # each its own shared memory

    until(four_of_each)


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


@pytest.mark.parametrize("endpoint", ["ids", "events"])
def test_requests_that_come_together_are_scored_together_and_a_bad_one_hurts_nobody(
    server, events, encoded, encoder, expected, endpoint
):
    def call(index):
        if endpoint == "events":
            return lambda: infer_events(server, "grpc", [events[index]])
        rows = plain_batch([encoded[index]], encoder.columns)
        return lambda: infer(server, "grpc", "ids", rows, "score")

    def bad_call():
        return infer_events(server, "grpc", ["nonsense"])

    names = {
        "ids": ("merlin_sim_ids_model_calls_total", "merlin_sim_ids_requests_total"),
        "events": ("nv_inference_exec_count", "nv_inference_request_success"),
    }
    of = {"ids": {"version": "1"}, "events": {"model": "events"}}[endpoint]
    call(0)()
    # A counter is there once something was counted, which is after the answer.
    until(lambda: all(is_counted(server, name, **of) for name in names[endpoint]))
    before = [metric(server, name, **of) for name in names[endpoint]]

    def counted(index):
        return metric(server, names[endpoint][index], **of) - before[index]

    calls = 0
    for _ in range(20):  # until some have met: each round sends a crowd
        *results, refused = in_threads([*(call(index) for index in range(24)), bad_call])
        assert isinstance(refused, InferenceServerException)
        for index, result in enumerate(results):
            np.testing.assert_allclose(np.ravel(result), expected[index], atol=1e-5)
        calls += 24
        # A request is counted when it has been answered: one of the test before may be too.
        until(lambda calls=calls: counted(1) >= calls)
        if counted(0) < calls:
            break
    assert counted(0) < calls


def worker_of(server):
    return psutil.Process(processes_of(server.replicas.active.folder, "events")[1])


ENDS = {
    "kill Triton": lambda server: psutil.Process(server.replicas.active.process.pid).kill(),
    "kill a worker": lambda server: worker_of(server).kill(),
    "stop a worker": lambda server: worker_of(server).send_signal(signal.SIGSTOP),
    "kill the fork server": lambda server: fork_server().kill(),
}


@pytest.mark.parametrize("happens", ENDS.values(), ids=ENDS)
def test_nothing_is_lost_or_wrong_whatever_ends_or_hangs(server, events, expected, happens):
    def client(number):
        protocol = PROTOCOLS[number % 2]

        def ask(event):
            return 1, infer_events(server, protocol, [event])[0, 0]

        return Asking(ask, events, {1: expected}, 3 * number)

    with ExitStack() as stack:
        clients = [stack.enter_context(client(number)) for number in range(4)]
        until_more_came(clients)
        happens(server)
        until_more_came(clients)
        until(server.is_ready)
    assert [client.wrong for client in clients] == [[]] * 4
    np.testing.assert_allclose(infer_events(server, "http", events)[:, 0], expected, atol=1e-5)


def test_what_cannot_be_served_at_is_reported(servable):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = f"`grpc_port` = {port}: another process listens on 127.0.0.1:{port}. .* 0 for a"
        with pytest.raises(ServerError, match=message):
            Server(servable, ServerOptions(**{**FREE, "grpc_port": port}))
    for host in ("192.0.2.1", "no address"):
        with pytest.raises(ServerError, match=f"`host` should be an address of this .*{host}"):
            Server(servable, ServerOptions(**FREE, host=host))
    with pytest.raises(MerlinSimError) as error:
        ServerOptions(http_port=70000, grpc_port=5, metrics_port=5, exit_timeout=0)
    for problem in ("`http_port` = 70000", "different", "`metrics_port` = 5", "exit_timeout"):
        assert problem in str(error.value)
