"""A real server whose Triton, or a model's process, is killed or hangs while clients ask."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import psutil
import pytest
from held_server import until
from triton_calls import infer_events

from merlin_sim.serving.settings import ServerOptions
from merlin_sim.serving.triton.serve import Server
from merlin_sim.serving.workers.protocol import processes_of

pytest.importorskip("pytriton")
pytest.importorskip("tritonclient.grpc")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CLIENTS = 6


class Client(threading.Thread):
    """Asks for one event after the other, and keeps what was wrong."""

    def __init__(self, server, protocol, events, expected, first):
        super().__init__()
        self.server, self.protocol, self.events, self.expected = server, protocol, events, expected
        self.place, self.answered, self.wrong = first, 0, []
        self.ending = threading.Event()

    def run(self):
        while not self.ending.is_set():
            self.place = (self.place + 1) % len(self.events)
            try:
                found = infer_events(self.server, self.protocol, [self.events[self.place]])[0, 0]
            except Exception as error:
                self.wrong.append(repr(error))
                time.sleep(0.1)
                continue
            if abs(found - self.expected[self.place]) > 1e-5:
                self.wrong.append((self.place, found))
            self.answered += 1


def kill_triton(server):
    psutil.Process(server.replicas.active.process.pid).kill()


def kill_worker(server):
    psutil.Process(processes_of(server.replicas.active.folder, "events")[1]).kill()


def stop_worker(server):
    psutil.Process(processes_of(server.replicas.active.folder, "events")[1]).send_signal(
        signal.SIGSTOP
    )


def kill_fork_server(server):
    psutil.Process(server._fork_server.pid).kill()


@pytest.fixture(scope="module")
def server(servable):
    free = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}
    with Server(servable, ServerOptions(**free, start_timeout=400)) as running:
        yield running
        fork_server = psutil.Process(running._fork_server.pid)
        left = [fork_server, *fork_server.children(recursive=True)]
    _, alive = psutil.wait_procs(left, timeout=60)
    assert not alive


@pytest.mark.parametrize("happens", [kill_triton, kill_worker, stop_worker, kill_fork_server])
def test_nothing_is_lost_or_wrong_whatever_ends_or_hangs(server, events, expected, happens):
    clients = [
        Client(server, ("http", "grpc")[n % 2], events, expected, 3 * n) for n in range(CLIENTS)
    ]
    for client in clients:
        client.start()

    def all_go_on():
        before = [client.answered for client in clients]
        until(lambda: all(c.answered > b + 5 for c, b in zip(clients, before, strict=True)))

    try:
        all_go_on()
        happens(server)
        all_go_on()
        until(server.is_ready)
    finally:
        for client in clients:
            client.ending.set()
        for client in clients:
            client.join()
    assert [client.wrong for client in clients] == [[]] * CLIENTS
    np.testing.assert_allclose(infer_events(server, "http", events)[:, 0], expected, atol=1e-5)
