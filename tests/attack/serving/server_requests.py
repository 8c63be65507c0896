"""The attack on a running server: whatever is sent, it answers, lives, and answers well afterwards.

A case is one real Triton, from its start to its end.
"""

from __future__ import annotations

import contextlib
import http.client
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from ..kinds import pick
from ..mutations.byte_mutations import changed, drawn_change
from ..outcome import READ, Outcome
from ..plan import Plan
from ..worker import patience
from .click_requests import ROW_KINDS, Rows, arrays_of
from .good_servable import good_servable
from .requests import KINDS, REQUEST_KINDS, Requests, change_array_of

REQUESTS = 200
SECONDS = 60.0
"""The longest wait for one answer."""
NO_CANDIDATE = -1
"""What stands where an event has fewer candidates than another of its request."""
DATATYPES = {"int64": "INT64", "int32": "INT32", "float32": "FP32", "bool": "BOOL"}
PATHS = ["/v2/models/events/infer", "/v2/models/ids/infer", "/v2/models/none/infer", "/", "/v2"]


class ServerFamily:
    """Cases of one server each: of SIM's kind of events, or of DLRM's rows."""

    def __init__(self, name: str, directory: str) -> None:
        """Choose the servable."""
        self.name = name
        self._directory = directory

    def prepare(self) -> None:
        """Make the servable."""
        self._servable = good_servable() / self._directory

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw the seed of a server's requests."""
        return Plan({"seed": int(random.integers(1 << 30)), "sizes": {"requests": REQUESTS}}, ())

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Start a server, send the requests, ask once more, stop it."""
        from merlin_sim.serving.servables.servable import Servable
        from merlin_sim.serving.triton.serve import Server
        from merlin_sim.serving.triton.server_options import ServerOptions

        random = np.random.default_rng(plan.base["seed"])
        servable = Servable.open(self._servable)
        sender = RowSender(servable) if servable.takes_rows else EventSender(servable)
        ports = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}
        phase("start")
        with Server(servable, ServerOptions(**ports, start_timeout=patience(200))) as server:
            good = sender.good()
            first = _send(server.http_port, PATHS[0], good, {})
            if first[0] != 200:
                return Outcome("refused a good request", str(first))
            process, statuses = server.process, Counter[int]()
            for number in range(plan.base["sizes"]["requests"]):
                path, body, headers = sender.drawn(random)
                phase(f"request {number}")
                status, answer = _send(server.http_port, path, body, headers)
                statuses[status] += 1
                if not 200 <= status < 500 or (status >= 400 and not answer):
                    return Outcome(f"answer {status}", f"to {path} {body[:200]!r}: {answer!r:.200}")
                if status == 200 and not _are_scores(answer):
                    return Outcome("no scores", f"to {path} {body[:200]!r}: {answer!r:.200}")
            again = _send(server.http_port, PATHS[0], good, {})
            if server.process is not process or process is None or process.ended() is not None:
                return Outcome("the server ended", str(statuses))
            if again != first:
                return Outcome("another answer afterwards", f"{again}, first {first}")
        return Outcome(READ, str(dict(statuses)))


class EventSender:
    """Events whose nodes, JSON or bytes are changed."""

    def __init__(self, servable: Any) -> None:
        self._user = servable.channels["user_features"][0]

    def good(self) -> bytes:
        return _body(Requests({"seed": 1, "sizes": {"events": 1}}, self._user))

    def drawn(self, random: np.random.Generator) -> tuple[str, bytes, dict[str, str]]:
        seed = int(random.integers(1 << 30))
        requests = Requests({"seed": seed, "sizes": {"events": 2}}, self._user)
        for _ in range(int(random.integers(0, 3))):
            kind = REQUEST_KINDS[int(random.integers(3))]
            KINDS[kind.name].change(requests, **kind.drawn(random).arguments)
        path = PATHS[0] if random.random() < 0.8 else pick(random, PATHS)
        return path, _damaged(random, _body(requests)), {}


class RowSender:
    """Rows of numbers and categories as JSON, and arrays of both, as JSON and as bytes."""

    def __init__(self, servable: Any) -> None:
        from merlin_sim.serving.events.row_encoder import open_encoder

        self._encoder = open_encoder(servable)

    def good(self) -> bytes:
        return _body(Rows({"seed": 1, "sizes": {"events": 1}}))

    def drawn(self, random: np.random.Generator) -> tuple[str, bytes, dict[str, str]]:
        rows = Rows({"seed": int(random.integers(1 << 30)), "sizes": {"events": 2}})
        if random.random() < 0.5:
            for _ in range(int(random.integers(0, 3))):
                kind = pick(random, ROW_KINDS[:-1])
                kind.change(rows, **kind.drawn(random).arguments)
            path = PATHS[0] if random.random() < 0.8 else pick(random, PATHS)
            return path, _damaged(random, _body(rows)), {}
        arrays = arrays_of(self._encoder, rows.texts)
        for _ in range(int(random.integers(0, 3))):
            change_array_of(arrays, **ROW_KINDS[-1].drawn(random).arguments)
        head, tail = _arrays_body(arrays, as_bytes=bool(random.random() < 0.5))
        headers = {"Inference-Header-Content-Length": str(len(head))} if tail else {}
        return PATHS[1], _damaged(random, head + tail), headers


def _arrays_body(arrays: dict[str, Any], as_bytes: bool) -> tuple[bytes, bytes]:
    """A request's JSON, and the bytes behind it."""
    entries, tail = [], b""
    for name, array in arrays.items():
        entry: dict[str, Any] = {"name": name, "shape": list(array.shape)}
        entry["datatype"] = DATATYPES.get(str(array.dtype), "BYTES")
        if as_bytes and array.dtype != object:
            tail += array.tobytes()
            entry["parameters"] = {"binary_data_size": array.nbytes}
        else:
            entry["data"] = array.ravel().tolist()
        entries.append(entry)
    return json.dumps({"inputs": entries}).encode(), tail


def _damaged(random: np.random.Generator, body: bytes) -> bytes:
    content = bytearray(body)
    if random.random() < 0.4 and content:
        change = drawn_change(random)
        at = change["at"] % len(content)
        changed(content, at, change["change"], change["count"], change["value"])
    return bytes(content)


def _are_scores(answer: bytes) -> bool:
    """Whether an answer's scores are probabilities; answers without any are."""
    try:
        outputs = json.loads(answer).get("outputs", [])
    except ValueError:
        return False
    for output in outputs:
        if output["name"] != "scores":
            continue
        for each in output["data"]:
            scores = json.loads(each) if isinstance(each, str) else [each]
            if not all(0 <= score <= 1 or score == NO_CANDIDATE for score in scores):
                return False
    return True


def _body(requests: Requests | Rows) -> bytes:
    data = [text.decode("utf-8", "replace") for text in requests.texts]
    entry: dict[str, Any] = {"name": "event", "shape": [len(data), 1], "datatype": "BYTES"}
    return json.dumps({"inputs": [{**entry, "data": data}]}).encode()


def _send(port: int, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    """Give status and answer; 0 where there was none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(SECONDS))
    with contextlib.closing(connection):
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            return 0, repr(error).encode()
