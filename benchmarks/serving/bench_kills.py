"""A server whose Triton is killed again and again while clients ask: what is lost, what waits.

    .venv/bin/python benchmarks/serving/bench_kills.py [--kills 10] [--seconds 60] [--clients 32]

Makes a small SIM, serves it, and has each client send one event after the other over HTTP. Every
answer is compared with what the same model says offline. Prints the requests, those that were
lost or answered wrongly, and percentiles of all requests and of those that met a replacement; ends
with 1 where one was lost or wrong. What is killed is Triton itself, with --what stub or worker a
process of the model `events`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from merlin_sim.models import build_model
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.feature_spec import Chunk, Feature, FeatureSpec
from merlin_sim.schemas.merlin_schema import to_merlin_schema
from merlin_sim.serving.encoder import EventEncoder
from merlin_sim.serving.scorer import Scorer
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.settings import ServerOptions
from merlin_sim.serving.triton.export import export_model
from merlin_sim.serving.triton.serve import Server
from merlin_sim.serving.workers.protocol import processes_of

EVENTS = 256


def make_servable(directory: Path) -> Servable:
    """Export a small SIM with random weights."""
    names = ("click", "user", "book", "kind", "books", "kinds", "books_not", "kinds_not")
    sizes = dict(zip(names, (None, 500, 2000, 50, 2000, 50, 2000, 50), strict=True))
    features = {"click": Feature("int8")}
    for name in names[1:]:
        lists = None if name in ("user", "book", "kind") else (100,)
        features[name] = Feature("int64", cardinality=sizes[name], dimensions=lists)
    channels = {
        "label": names[:1],
        "user_features": names[1:2],
        "target_item_features": names[2:4],
        "positive_history": names[4:6],
        "negative_history": names[6:8],
    }
    sources = {m: (Chunk("parquet", names, (f"{m}.parquet",)),) for m in ("train", "test")}
    spec = FeatureSpec(features, sources, channels, {})
    dataset = DatasetDirectory(directory, spec, to_merlin_schema(spec))
    model = build_model("sim", dataset.schema, embedding_dim=16, long_seq_length=90, top_k=50)
    return Servable.open(export_model(model, dataset, directory / "servable", checkpoint={}))


def make_events() -> list[dict[str, Any]]:
    """Events of 20 candidates each."""
    chance = np.random.default_rng(1)

    def items(count: int) -> list[dict[str, int]]:
        books, kinds = (chance.integers(1, most, count).tolist() for most in (2000, 50))
        return [{"book": book, "kind": kind} for book, kind in zip(books, kinds, strict=True)]

    return [
        {"user": int(chance.integers(1, 500)), "history": items(100), "candidates": items(20)}
        for _ in range(EVENTS)
    ]


class Client(threading.Thread):
    """Sends one event after the other, and keeps what came of it."""

    def __init__(self, port: int, bodies: list[bytes], expected: Any, first: int) -> None:
        """Begin nothing yet."""
        super().__init__()
        self.port, self.bodies, self.expected, self.index = port, bodies, expected, first
        self.ending = threading.Event()
        self.times: list[tuple[float, float]] = []
        self.lost: list[str] = []
        self.wrong = 0

    def run(self) -> None:
        """Ask until it is told to end."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        while not self.ending.is_set():
            self.index = (self.index + 7) % len(self.bodies)
            begin = time.monotonic()
            try:
                connection.request("POST", "/v2/models/events/infer", self.bodies[self.index])
                response = connection.getresponse()
                content = response.read()
                if response.status != 200:
                    raise OSError(f"{response.status} {content[:200]!r}")
                scores = json.loads(content)["outputs"][0]["data"]
                self.wrong += bool(np.abs(scores - self.expected[self.index]).max() > 1e-5)
            except (OSError, http.client.HTTPException) as error:
                self.lost.append(repr(error))
                connection.close()
            self.times.append((begin, time.monotonic()))


def kill(server: Server, what: str) -> None:
    """Kill the Triton that answers, or a process of its model `events`."""
    if what == "triton":
        psutil.Process(server.replicas.active.process.pid).kill()
        return
    folder = server.replicas.active.folder  # type: ignore[union-attr]
    stub, worker = processes_of(folder, "events")
    psutil.Process(stub if what == "stub" else worker).kill()


def main() -> None:
    """Serve, ask, kill, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--what", choices=("triton", "stub", "worker"), default="triton")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        servable, events = make_servable(Path(folder)), make_events()
        encoder, scorer = EventEncoder(servable), Scorer(servable)
        expected = scorer.score_events([encoder.encode(encoder.parse(e)) for e in events])
        bodies = []
        for event in events:
            tensor = {"name": "event", "shape": [1, 1], "datatype": "BYTES"}
            tensor["data"] = [json.dumps(event)]  # type: ignore[assignment]
            asked = {"inputs": [tensor], "outputs": [{"name": "scores"}]}
            bodies.append(json.dumps(asked).encode())
        with Server(servable, ServerOptions(http_port=0, grpc_port=0, metrics_port=0)) as server:
            sys.exit(measure(server, bodies, expected, arguments))


def measure(server: Server, bodies: list[bytes], expected: Any, arguments: Any) -> int:
    """Ask and kill; 1 where a request was lost or answered wrongly."""
    server._say = lambda message: print(f"    {message}", flush=True)
    clients = [Client(server.http_port, bodies, expected, 5 * n) for n in range(arguments.clients)]
    for client in clients:
        client.start()
    killed = []
    try:
        for _ in range(arguments.kills):
            time.sleep(arguments.seconds / arguments.kills)
            while not server.is_ready():
                time.sleep(0.01)
            killed.append(time.monotonic())
            kill(server, arguments.what)
        time.sleep(arguments.seconds / arguments.kills)
    finally:
        for client in clients:
            client.ending.set()
        for client in clients:
            client.join()
    times = [one for client in clients for one in client.times]
    taken = np.array([end - begin for begin, end in times])
    met = np.array([e - b for b, e in times if any(b <= at <= e for at in killed)] or [0.0])
    lost = [one for client in clients for one in client.lost]
    wrong = sum(client.wrong for client in clients)
    span = max(e for _, e in times) - min(b for b, _ in times)
    first = min(b for b, _ in times)
    seconds = np.bincount([int(end - first) for _, end in times])
    print(f"answered in each second: {' '.join(map(str, seconds))}")
    print(f"{len(times):,} requests in {span:.0f} s, {len(killed)} kills of {arguments.what}")
    print(f"lost: {len(lost)} {lost[:2]}; wrong: {wrong}")
    for name, values in (("all", taken), ("in hand at a kill", met)):
        p50, p99 = np.percentile(values, [50, 99])
        print(
            f"{name}: {len(values):,}, p50 {p50:.3f} s, p99 {p99:.3f} s, most {values.max():.3f} s"
        )
    return int(bool(lost or wrong))


if __name__ == "__main__":
    main()
