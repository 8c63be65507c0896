"""The server on loopback: latency p50, p95, p99 and throughput at 1, 8 and 32 clients.

    .venv/bin/python benchmarks/bench_serve.py [--seconds 5] [--candidates 1 100]

Clients are threads that each send one event after the other, over gRPC, to `merlin-sim serve`
with a SIM of random weights of published size. Prints the table of docs/serving.md, in about
a minute. Needs the extra `serve`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import tritonclient.grpc as triton
from bench_candidates import HISTORY, SIZES, make_servable

from merlin_sim.serving.settings import ServerOptions
from merlin_sim.serving.triton.serve import Server

CLIENTS = (1, 8, 32)
EVENTS = 256


def make_events(candidates: int) -> list[np.ndarray]:
    """Raw events with full histories; keys are ids, as there are no vocabularies."""
    chance = np.random.default_rng(candidates)

    def items(count: int) -> list[dict[str, int]]:
        ids = [
            chance.integers(1, SIZES[name] + 1, count).tolist() for name in ("item_id", "cat_id")
        ]
        return [{"item_id": item, "cat_id": cat} for item, cat in zip(*ids, strict=True)]

    events = []
    for _ in range(EVENTS):
        user = int(chance.integers(1, SIZES["user_id"] + 1))
        event = {"user_id": user, "history": items(HISTORY), "candidates": items(candidates)}
        events.append(np.array([[json.dumps(event)]], object))
    return events


def run_client(
    port: int, events: list[np.ndarray], end: float, times: list[float], errors: list[Exception]
) -> None:
    """Send one event after the other until `end`."""
    client = triton.InferenceServerClient(f"127.0.0.1:{port}")
    try:
        index = threading.get_ident() % len(events)
        while time.perf_counter() < end:
            entry = triton.InferInput("event", [1, 1], "BYTES")
            entry.set_data_from_numpy(events[index % len(events)])
            begin = time.perf_counter()
            client.infer("events", [entry], client_timeout=60).as_numpy("scores")
            times.append(time.perf_counter() - begin)
            index += 1
    except Exception as error:
        errors.append(error)
    finally:
        client.close()


def measure(port: int, events: list[np.ndarray], clients: int, seconds: float) -> list[float]:
    """Run so many clients at the same time; all latencies in seconds."""
    times: list[list[float]] = [[] for _ in range(clients)]
    errors: list[Exception] = []
    end = time.perf_counter() + seconds
    threads = [
        threading.Thread(target=run_client, args=(port, events, end, own, errors)) for own in times
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [latency for own in times for latency in own]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="per measurement")
    parser.add_argument("--candidates", type=int, nargs="+", default=[1, 100])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        servable = make_servable(Path(directory), "sim")
        options = ServerOptions(http_port=0, grpc_port=0, metrics_port=0)
        with Server(servable, options) as server:
            print("| candidates | clients | p50 | p95 | p99 | events/s | candidates/s |")
            print("|---:|---:|---:|---:|---:|---:|---:|", flush=True)
            for candidates in arguments.candidates:
                events = make_events(candidates)
                measure(server.grpc_port, events, 4, 2.0)  # warm-up
                for clients in CLIENTS:
                    begin = time.perf_counter()
                    times = measure(server.grpc_port, events, clients, arguments.seconds)
                    rate = len(times) / (time.perf_counter() - begin)
                    p50, p95, p99 = 1e3 * np.percentile(times, [50, 95, 99])
                    print(
                        f"| {candidates} | {clients} | {p50:.1f} ms | {p95:.1f} ms | {p99:.1f} ms "
                        f"| {rate:,.0f} | {rate * candidates:,.0f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
