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

from .byte_mutations import changed, drawn_change
from .good_servable import good_servable
from .kinds import pick
from .outcome import READ, Outcome
from .plan import Plan
from .requests import KINDS, REQUEST_KINDS, Requests
from .worker import patience

REQUESTS = 200
SECONDS = 60.0
"""The longest wait for one answer."""
PATHS = ["/v2/models/events/infer", "/v2/models/ids/infer", "/v2/models/none/infer", "/", "/v2"]


class ServerFamily:
    """Cases of one server each."""

    name = "server"

    def prepare(self) -> None:
        """Make the servable."""
        self._servable = good_servable() / "servable"

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
        user = servable.channels["user_features"][0]
        ports = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}
        phase("start")
        with Server(servable, ServerOptions(**ports, start_timeout=patience(200))) as server:
            good = _body(Requests({"seed": 1, "sizes": {"events": 1}}, user))
            first = _send(server.http_port, PATHS[0], good)
            if first[0] != 200:
                return Outcome("refused a good request", str(first))
            process, statuses = server.process, Counter[int]()
            for number in range(plan.base["sizes"]["requests"]):
                path, body = _drawn(random, user)
                phase(f"request {number}")
                status, answer = _send(server.http_port, path, body)
                statuses[status] += 1
                if not 200 <= status < 500 or (status >= 400 and not answer):
                    return Outcome(f"answer {status}", f"to {path} {body[:200]!r}: {answer!r:.200}")
            again = _send(server.http_port, PATHS[0], good)
            if server.process is not process or process is None or process.ended() is not None:
                return Outcome("the server ended", str(statuses))
            if again != first:
                return Outcome("another answer afterwards", f"{again}, first {first}")
        return Outcome(READ, str(dict(statuses)))


def _drawn(random: np.random.Generator, user: str) -> tuple[str, bytes]:
    """A request whose event, JSON or bytes are changed."""
    requests = Requests({"seed": int(random.integers(1 << 30)), "sizes": {"events": 2}}, user)
    for _ in range(int(random.integers(0, 3))):
        kind = REQUEST_KINDS[int(random.integers(3))]
        KINDS[kind.name].change(requests, **kind.drawn(random).arguments)
    body = bytearray(_body(requests))
    if random.random() < 0.4:
        change = drawn_change(random)
        at = change["at"] % len(body)
        changed(body, at, change["change"], change["count"], change["value"])
    path = PATHS[0] if random.random() < 0.8 else pick(random, PATHS)
    return path, bytes(body)


def _body(requests: Requests) -> bytes:
    data = [text.decode("utf-8", "replace") for text in requests.texts]
    entry: dict[str, Any] = {"name": "event", "shape": [len(data), 1], "datatype": "BYTES"}
    return json.dumps({"inputs": [{**entry, "data": data}]}).encode()


def _send(port: int, path: str, body: bytes) -> tuple[int, bytes]:
    """Give status and answer; 0 where there was none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(SECONDS))
    with contextlib.closing(connection):
        try:
            connection.request("POST", path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            return 0, repr(error).encode()
