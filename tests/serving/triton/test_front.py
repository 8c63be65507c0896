"""What stands before Triton's HTTP, with a server behind that reports what reached it."""

from __future__ import annotations

import base64
import gzip
import http.client
import itertools
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import CollectorRegistry, Counter
from upstream import Answers, Upstream

pytest.importorskip("aiohttp")
from aiohttp import web  # noqa: E402

from merlin_sim.foundation.requests import RequestError  # noqa: E402
from merlin_sim.serving.triton.admission import Access, is_deeper  # noqa: E402
from merlin_sim.serving.triton.front import (  # noqa: E402
    DEEPEST,
    JSON_LENGTH,
    Front,
    FrontLimits,
    Listeners,
)
from merlin_sim.serving.workers.protocol import FAULT  # noqa: E402

MOST = 100_000
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
# What Triton and its models answer, by what they are asked.
UNREAD = b'{"error":"failed to parse the request JSON buffer: Missing a quotation mark"}'
LACKING = b"""{"error":"Unable to parse 'inputs': attempt to access non-existing"}"""
ANSWERS = {
    b'"a\0b"': (500, UNREAD),
    b'{"id": "1"}': (500, LACKING),
    b'"broken"': (500, b'{"error":"failed to allocate"}'),
    b'"many"': (
        400,
        b'{"error":"[request id: <id_unknown>] inference request batch-size must be <= 4096'
        b""" for 'events'"}""",
    ),
    b'"wide"': (
        400,
        b'{"error":"the request is too large: expected at most 5 scores, received \\"9\\""}',
    ),
    b'"not now"': (503, b'{"error":"not just now: the history cannot be read"}'),
    b'"bad"': (400, b'{"error":"no such tensor"}'),
}
STUB, DEAD = b'"stub"', b'"dead"'
STUB_IS_GONE = b"""{"error":"Stub process 'events_0' is not healthy."}"""
REACHED, GO_ON, GONE = threading.Event(), threading.Event(), threading.Event()
INFER = "/v2/models/events/infer"
TOKEN = "a token of many characters"


class Echo(Answers):
    """Answers with what it got."""

    def do_POST(self):
        body = self.body()
        if body == b'"slow"':
            REACHED.set()
            GO_ON.wait(60)
        if body == DEAD and self.server.dies:
            self.close_connection = True
            return
        found = {"path": self.path, "headers": dict(self.headers), "body": body.decode()}
        status, answer = ANSWERS.get(body, (200, json.dumps(found).encode()))
        if body == STUB and self.server.dies:
            status, answer = 500, STUB_IS_GONE
        self.respond(status, answer, **{JSON_LENGTH: "7"})

    do_GET = do_POST

    def finish(self):
        super().finish()
        GONE.set()


async def answered_here(front, body):
    if body == b'"refused"':
        raise RequestError("not that")
    if body == b'"fault"':
        raise ZeroDivisionError("at /secret/path")
    return web.json_response({"read": body.decode()}, status=418)


async def ask_model(front, body):
    return await front.infer("model", b'{"asked": ' + body + b"}")


class Behind:
    """A Triton as a front knows one, on sockets in a folder."""

    def __init__(self, folder):
        self.folder, self.has_answered = folder, False
        self.suspected = threading.Event()
        folder.mkdir()
        self.servers = [Upstream(folder / name, Echo) for name in ("http", "metrics")]
        for server in self.servers:
            server.dies = False

    def suspect(self):
        self.suspected.set()

    def die(self):
        for server in self.servers:
            server.dies = True

    def close(self):
        for server in self.servers:
            server.close()


@pytest.fixture
def start(tmp_path):
    """Start a front with bounds and access; ask it for status, headers, and what was answered."""
    running = []

    def start(bounds, access=None):
        listeners = [socket.socket() for _ in range(2)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        http_port, metrics_port = (listener.getsockname()[1] for listener in listeners)
        front_listeners = Listeners(*listeners, None, access or Access())
        routes = {"/here": answered_here, "/there": ask_model}
        registry = CollectorRegistry()
        Counter("ours", "Something of a test", registry=registry).inc()
        front = Front(front_listeners, bounds, routes, registry=registry)
        behind = Behind(tmp_path / f"triton-{len(running)}")
        running.append((front, behind))
        front.switch(behind)

        def ask(body=None, headers=None, method="POST", path=INFER, port=http_port):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                connection.request(method, path, body, headers or {})
                response = connection.getresponse()
                content = response.read()
                return response.status, response.headers, json.loads(content or b"null")
            finally:
                connection.close()

        def next_triton():
            another = Behind(tmp_path / f"next-{len(running)}")
            running.append((front, another))
            return another

        ask.front, ask.behind, ask.next, ask.metrics = front, behind, next_triton, metrics_port
        return ask

    for event in (REACHED, GO_ON, GONE):
        event.clear()
    yield start
    GO_ON.set()
    for front, behind in running:
        front.close()
        behind.close()


@pytest.fixture
def front(start):
    """A front that takes little."""
    return start(FrontLimits(body=MOST))


def test_a_request_is_handed_on_as_it_is_and_so_is_its_answer(front):
    given = {JSON_LENGTH: "2", "Accept-Encoding": "br", "Authorization": "Bearer x"}
    given["x-merlin-sim-token"] = "a guess"
    status, headers, found = front("{}", given)
    assert (status, headers[JSON_LENGTH]) == (200, "7")
    assert (found["path"], found["body"]) == (INFER, "{}")
    assert found["headers"][JSON_LENGTH] == "2" and found["headers"]["Accept-Encoding"] == "br"
    # What opens this server, or would open Triton's management, is none of its business.
    assert not {"Authorization", "x-merlin-sim-token"} & set(found["headers"])
    for path in ("/v2", "/v2/models/a.b-c", "/v2/models/a/versions/3/ready", "/v2/models/events"):
        _, _, found = front(method="GET", path=path)
        assert (found["path"], found["body"]) == (path, "")
    # A form is parsed on the stack, and so are the pieces of a chunked body.
    _, _, found = front((b"1" for _ in range(4000)), FORM)
    assert found["body"] == "1" * 4000
    assert found["headers"]["Content-Length"] == "4000"
    assert not {"Transfer-Encoding", "Content-Type"} & set(found["headers"])
    _, _, found = front(gzip.compress(b'"hello"'), {"Content-Encoding": "gzip"})
    assert found["body"] == '"hello"' and "Content-Encoding" not in found["headers"]
    assert GONE.wait(60)  # a connection goes when it is idle: Triton waits for it when it ends


def test_what_is_not_allowed_does_not_reach_triton(front):
    for method, path in (
        ("POST", "/v2/repository/index"),
        ("GET", "/v2/models/events/config"),
        ("GET", "/metrics"),
        ("POST", "/v2/models/events%2Finfer"),
        ("POST", "/v2/models/../repository/index"),
        ("POST", "/v2/models/events/generate"),
        ("GET", "//v2/logging"),
        ("DELETE", INFER),
    ):
        status, _, found = front(None if method == "GET" else "{}", method=method, path=path)
        assert status in (404, 405) and "path" not in found, path


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b'"a\0b"', 400, json.loads(UNREAD)["error"]),  # the sender's fault
        (b'{"id": "1"}', 400, json.loads(LACKING)["error"]),
        (b'"bad"', 400, "no such tensor"),
        (b'"many"', 413, "expected at most 4,096 events in a request to 'events': "),
        (b'"wide"', 413, 'expected at most 5 scores, received "9"'),
        (b'"broken"', 500, FAULT),
        (b'"not now"', 503, "the history cannot be read"),
    ],
)
def test_what_triton_refuses_is_answered_by_whose_fault_it_is(front, body, status, error):
    found, headers, answer = front(body)
    assert found == status and answer["error"].startswith(error)
    assert headers["Retry-After"] == ("1" if status == 503 else None)


BOUNDED = "expected a body of at most 100,000 bytes"


@pytest.mark.parametrize(
    ("body", "headers", "message"),
    [
        (b"x" * (MOST + 1), {}, BOUNDED),
        ((b"x" * 1000 for _ in range(200)), {}, BOUNDED),
        (gzip.compress(b"x" * 200 * MOST), {"Content-Encoding": "gzip"}, BOUNDED),
        (b"[" * (DEEPEST + 1), {}, "expected JSON nested at most 64 levels deep"),
        (b'{"data": [1], "shape": [4611686018427387904]}', {}, "as many elements as"),
        (b'{"shape": [9, 999, 9], "shape": [1], "data": []}', {}, "received [9, 999, 9]"),
        (b'{"a\xff": Inf, "x": [{"sh\\u0061pe": [0, 999], "data": []}]}', {}, "one JSON object"),
        (b'{"a\xff": "\n", "x": [{"sh\\u0061pe": [0, 999], "data": []}]}', {}, "[0, 999]"),
        (b'{"a": 1' + b"0" * 5000 + b"}", {}, "expected one JSON object: Exceeds the limit"),
        (b"nonsense", {}, "expected one JSON object: Expecting value, at character 1"),
        *(
            ("{}", {JSON_LENGTH: length.encode()}, f"{JSON_LENGTH}: expected 0 to 2, received")
            for length in ("3", "-1", "1e0", "", "٣")
        ),
    ],
    ids=itertools.count(),
)
def test_a_body_that_triton_could_not_bear_is_refused(front, body, headers, message):
    status, _, found = front(body, headers)
    assert status == (413 if message == BOUNDED else 400) and message in found["error"]


def test_what_triton_can_bear_is_handed_on(front):
    for body, headers in (
        ("[" * DEEPEST + "]" * DEEPEST, {}),
        ('{"a": 1}' + "[" * 1000, {JSON_LENGTH: "8"}),  # tensors follow, which may be anything
        ('{"name": "in shared memory", "shape": [1000000]}', {}),
        ('{"data": [[1, 2], [3, 4]], "shape": [2, 2]}', {}),
    ):
        assert front(body, headers)[0] == 200, body


def test_a_token_opens_it_and_nothing_else_does(start):
    ask = start(FrontLimits(), Access((TOKEN, "another token of many")))
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
        for path in (INFER, "/here", "/there"):
            status, reported, found = ask("{}", headers, path=path)
            assert status == 401 and "WWW-Authenticate" in reported and "path" not in found
        assert ask(headers=headers, method="GET", path="/metrics", port=ask.metrics)[0] == 401
    assert ask(method="GET", path="/v2/health/ready")[0] == 200  # asked by who watches machines
    basic = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
    for authorization in (f"Bearer {TOKEN}", "bearer another token of many", f"Basic {basic}"):
        assert ask("{}", {"Authorization": authorization})[0] == 200


def test_more_than_is_taken_at_once_is_refused_at_once(start):
    ask = start(FrontLimits(body=MOST, requests=1))
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(ask, '"slow"')
        assert REACHED.wait(60)
        status, headers, found = ask("{}")
        assert (status, headers["Retry-After"]) == (429, "1") and "in hand" in found["error"]
        assert ask(method="GET", path="/v2/health/ready")[0] == 200
        GO_ON.set()
        assert slow.result(60)[0] == 200
    assert ask("{}")[0] == 200


def test_a_request_takes_no_longer_than_it_may(start):
    status, headers, found = start(FrontLimits(body=MOST, seconds=0.2))('"slow"')
    assert (status, headers["Retry-After"]) == (503, "1")
    assert "no answer within 0.2" in found["error"]


@pytest.mark.parametrize("body", [DEAD, STUB], ids=["triton", "a model's process"])
def test_what_is_lost_with_a_triton_is_asked_again_of_the_next(front, body):
    front.behind.die()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(front, body)
        assert front.behind.suspected.wait(60)
        front.front.switch(None)  # while there is none a request is held
        assert front(method="GET", path="/v2/health/ready")[0] == 503
        assert not asked.done()
        front.front.switch(front.next())
        status, _, found = asked.result(60)
    assert status == 200 and found["body"] == body.decode()


def test_what_ends_one_triton_after_the_other_is_refused(front):
    """Else one request would end all of them, for ever."""
    front.behind.die()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(front, DEAD)
        behind = front.behind
        for _ in range(3):
            assert behind.suspected.wait(60)
            behind = front.next()
            behind.die()
            front.front.switch(behind)
        status, _, found = asked.result(60)
    assert status == 503 and "again and again over this request" in found["error"]


def test_at_the_end_what_is_in_flight_is_answered_and_nothing_new(front):
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(front, '"slow"')
        assert REACHED.wait(60)
        front.front.refuse_new()
        status, _, found = front("{}")
        assert status == 503 and "ending" in found["error"]
        GO_ON.set()
        assert slow.result(60)[0] == 200


def test_what_is_answered_here_does_not_reach_triton(front, capfd):
    status, _, answer = front(b'{"a": 1}', path="/here")
    assert (status, answer) == (418, {"read": '{"a": 1}'})
    assert front(b'"refused"', path="/here")[0::2] == (400, {"error": "not that"})
    assert front(b'"fault"', path="/here")[0::2] == (500, {"error": FAULT})
    assert "/secret/path" in capfd.readouterr().err
    assert front(method="GET", path="/here")[0] == 405
    assert front(b"[" * (DEEPEST + 1), path="/here")[0] == 400
    assert front(b"x" * (MOST + 1), path="/here")[0] == 413
    assert front(b'"x"', path="/here/more")[0] == 404
    # A model is asked in plain JSON: nothing of the request's headers is handed on.
    status, _, found = front(b'{"a": 1}', {**FORM, "Authorization": "secret"}, path="/there")
    assert (status, found["path"]) == (200, "/v2/models/model/infer")
    assert found["body"] == '{"asked": {"a": 1}}' and "Authorization" not in found["headers"]


def test_what_is_added_stands_below_tritons_metrics(front):
    connection = http.client.HTTPConnection("127.0.0.1", front.metrics, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    assert text.startswith('{"path": "/metrics"') and "ours_total 1.0\n" in text
    assert "merlin_sim_requests_in_hand 0.0" in text
    assert front(method="POST", path="/metrics", port=front.metrics)[0] == 405
    assert front(method="GET", path="/v2/logging", port=front.metrics)[0] == 404


@pytest.mark.parametrize(
    "text", [b"[" * 65, b'["' + b'\\"' * 300_000 + b"[" * 65, b'{"a":' * 65, b"\\" + b"[" * 65]
)
def test_json_that_is_cut_short_has_a_depth_too(text):
    assert is_deeper(text, 64) == (b'"\\"' not in text)
