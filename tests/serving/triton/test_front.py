"""What stands before Triton's HTTP, with something that tells what reached it behind."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import socketserver
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler

import pytest

pytest.importorskip("aiohttp")
from merlin_sim.serving.limits import RequestError  # noqa: E402
from merlin_sim.serving.triton.front import DEEPEST, JSON_LENGTH, Detour, Door, Front  # noqa: E402

MOST = 100_000
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


LACKING = b'{"id": "1"}'
UNREAD = {
    b'"a\0b"': b'{"error":"failed to parse the request JSON buffer: Missing a quotation mark"}',
    LACKING: b"""{"error":"Unable to parse 'inputs': attempt to access non-existing"}""",
    b'"broken"': b'{"error":"failed to allocate"}',
}
"""What Triton answers with 500: what lacks something, what its parser alone does not read, and its
own faults."""
TOO_MANY = (
    b'{"error":"[request id: <id_unknown>] inference request batch-size must be <= 4096'
    b""" for 'events'"}"""
)
TOO_LARGE = {
    b'"many"': TOO_MANY,
    b'"wide"': b'{"error":"the request is too large: expected at most 5 scores, received \\"9\\""}',
}
"""What Triton and its models answer with 400 where a request is too large."""
REACHED, GO_ON, GONE = threading.Event(), threading.Event(), threading.Event()


class Echo(BaseHTTPRequestHandler):
    """Answers with what it got."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if body == b'"slow"':
            REACHED.set()
            GO_ON.wait(60)
        found = {"path": self.path, "headers": dict(self.headers), "body": body.decode()}
        answer = {**UNREAD, **TOO_LARGE}.get(body, json.dumps(found).encode())
        is_refused = body == b'"bad"' or body in TOO_LARGE
        self.send_response(500 if body in UNREAD else 400 if is_refused else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.send_header(JSON_LENGTH, "7")
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST

    def finish(self):
        super().finish()
        GONE.set()

    def address_string(self):
        return "a socket in a folder"

    def log_message(self, *arguments):
        """Say nothing."""


ADDED: list[str] = []


def added():
    """What stands below each page."""
    return "".join(ADDED)


async def answered_here(body):
    return 418, {"read": body.decode()}


def ask_model(body):
    if body == b'"refused"':
        raise RequestError("not that")
    return b'{"asked": ' + body + b"}"


def tell_model(content):
    """What the stand-in got, without its headers."""
    found = json.loads(content)
    return json.dumps([found["path"], found["body"]]).encode()


class Upstream(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


@pytest.fixture
def front(tmp_path):
    """Ask the front; status, headers, and what was answered."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    path = tmp_path / "http"
    for event in (REACHED, GO_ON, GONE):
        event.clear()
    ADDED.clear()
    with Upstream(str(path), Echo) as upstream:
        serving = threading.Thread(target=upstream.serve_forever)
        serving.start()
        here = {"/here": answered_here}
        there = {"/there": Detour("model", ask_model, tell_model)}
        running = Front([Door(listener, path, ("GET", "POST"), MOST, here, there, added)])

        def ask(body=None, headers=None, method="POST", path="/v2/x%2Fy?a=%20b"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                connection.request(method, path, body, headers or {})
                response = connection.getresponse()
                return response.status, response.headers, json.loads(response.read())
            finally:
                connection.close()

        ask.front = running
        ask.stop_upstream = lambda: (upstream.shutdown(), upstream.server_close(), path.unlink())
        try:
            yield ask
        finally:
            running.close()
            upstream.shutdown()
            serving.join()


def test_a_request_is_handed_on_as_it_is_and_so_is_its_answer(front):
    status, headers, found = front("{}", {"X-Own": "a", JSON_LENGTH: "2", "Accept-Encoding": "br"})
    assert (status, headers[JSON_LENGTH]) == (200, "7")
    assert (found["path"], found["body"]) == ("/v2/x%2Fy?a=%20b", "{}")
    assert found["headers"]["X-Own"] == "a" and found["headers"][JSON_LENGTH] == "2"
    assert found["headers"]["Accept-Encoding"] == "br"
    assert front('"bad"')[0] == 400
    assert front(method="GET")[2]["body"] == ""


def test_nothing_that_triton_cannot_bear_is_handed_on(front):
    """A form is parsed on the stack, and so are the pieces of a chunked body."""
    pieces = (b"1" for _ in range(4000))
    _, _, found = front(pieces, FORM)
    assert found["body"] == "1" * 4000
    assert found["headers"]["Content-Length"] == "4000"
    assert not {"Transfer-Encoding", "Content-Type"} & set(found["headers"])


@pytest.mark.parametrize("body", [b'"a\0b"', LACKING])
def test_json_that_triton_alone_cannot_read_is_the_senders_fault(front, body):
    status, _, answer = front(body)
    assert (status, answer) == (400, json.loads(UNREAD[body]))


def test_a_request_that_is_too_large_gets_413_and_what_to_do(front):
    status, _, found = front(b'"many"')
    assert status == 413
    assert found["error"].startswith("expected at most 4,096 events in a request to 'events': ")
    status, _, found = front(b'"wide"')
    assert (status, found) == (413, {"error": 'expected at most 5 scores, received "9"'})


def test_a_fault_of_tritons_stays_one(front):
    assert front(b'"broken"')[0] == 500


def test_a_compressed_body_is_handed_on_plain(front):
    _, _, found = front(gzip.compress(b'"hello"'), {"Content-Encoding": "gzip"})
    assert found["body"] == '"hello"' and "Content-Encoding" not in found["headers"]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"x" * (MOST + 1), {}),
        ((b"x" * 1000 for _ in range(200)), {}),
        (gzip.compress(b"x" * 200 * MOST), {"Content-Encoding": "gzip"}),
    ],
    ids=["plain", "chunked", "compressed"],
)
def test_a_body_is_bounded(front, body, headers):
    status, _, found = front(body, headers)
    assert (status, found) == (413, {"error": "expected a body of at most 100,000 bytes"})


def test_json_is_no_deeper_than_triton_can_read(front):
    assert front("[" * DEEPEST + "]" * DEEPEST)[0] == 200
    status, _, found = front("[" * (DEEPEST + 1))
    assert (status, found) == (400, {"error": "expected JSON nested at most 64 levels deep"})
    tensors = '{"a": 1}' + "[" * 1000  # what follows the JSON may be anything
    assert front(tensors, {JSON_LENGTH: "8"})[0] == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"data": [1], "shape": [4611686018427387904]}', "shape: expected as many elements as"),
        (b'{"shape": [9, 999, 9], "shape": [1], "data": []}', "received [9, 999, 9]"),
        (b'{"a\xff": Inf, "x": [{"sh\\u0061pe": [0, 999], "data": []}]}', "one JSON object"),
        (b'{"a\xff": "\n", "x": [{"sh\\u0061pe": [0, 999], "data": []}]}', "received [0, 999]"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "expected one JSON object: Exceeds the limit"),
        (b"nonsense", "expected one JSON object: Expecting value, at character 1"),
    ],
)
def test_json_claims_no_more_than_it_has(front, body, message):
    status, _, found = front(body)
    assert status == 400 and message in found["error"]


def test_data_that_stands_elsewhere_may_have_any_shape(front):
    assert front('{"name": "in shared memory", "shape": [1000000]}')[0] == 200
    assert front('{"data": [[1, 2], [3, 4]], "shape": [2, 2]}')[0] == 200


@pytest.mark.parametrize("length", ["3", "-1", "1e0", "", "٣"])
def test_the_length_of_the_json_is_checked(front, length):
    status, _, found = front("{}", {JSON_LENGTH: length.encode()})
    assert status == 400 and f"{JSON_LENGTH}: expected 0 to 2, received" in found["error"]


def test_other_methods_are_refused(front):
    assert front(method="DELETE")[0] == 405


def test_at_the_end_what_is_in_flight_is_answered_and_nothing_new(front):
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(front, '"slow"')
        assert REACHED.wait(60)
        front.front.refuse_new()
        status, _, found = front("{}")
        assert status == 503 and "ending" in found["error"]
        GO_ON.set()
        assert slow.result(60)[0] == 200


def test_a_connection_to_triton_goes_when_it_is_idle(front):
    """Triton waits for it when it is told to end."""
    assert front("{}")[0] == 200
    assert GONE.wait(60)


def test_without_triton_it_says_so(front):
    front.stop_upstream()
    status, _, found = front("{}")
    assert status == 503 and "the server is starting, ending" in found["error"]


def test_what_is_answered_here_does_not_reach_triton(front):
    status, _, answer = front(b'{"a": 1}', path="/here")
    assert (status, answer) == (418, {"read": '{"a": 1}'})
    assert front(method="GET", path="/here")[0] == 405
    assert front(b"[" * (DEEPEST + 1), path="/here")[0] == 400
    assert front(b"x" * (MOST + 1), path="/here")[0] == 413
    assert front(b'"x"', path="/here/more")[2]["path"] == "/here/more"


def test_a_detour_leads_to_a_model_and_back(front):
    """Its headers are of plain JSON: nothing of the request's is handed on."""
    asked = front(b'{"a": 1}', {**FORM, "Authorization": "secret"}, path="/there")
    assert asked[0] == 200 and asked[1]["Content-Type"].startswith("application/json")
    assert asked[2] == ["/v2/models/model/infer", '{"asked": {"a": 1}}']
    assert front(b'"refused"', path="/there")[0::2] == (400, {"error": "not that"})
    assert front(method="GET", path="/there")[0] == 405
    assert front(b'"broken"', path="/there/more")[0] == 500  # another path


def test_what_is_added_stands_below(front):
    found = front(b"{}")[2]
    ADDED.append(" ")
    assert front(b"{}")[2] == found
    ADDED.append("more")
    with pytest.raises(json.JSONDecodeError):
        front(b"{}")
