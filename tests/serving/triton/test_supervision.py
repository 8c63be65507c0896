"""A server that ends by itself is started again, within bounds; a small stand-in plays Triton."""

from __future__ import annotations

import sys

import psutil
import pytest
from held_server import until

pytest.importorskip("pytriton")
from merlin_sim.serving.triton import serve  # noqa: E402
from merlin_sim.serving.triton.bundled_server import ServerError  # noqa: E402
from merlin_sim.serving.triton.serve import Server  # noqa: E402
from merlin_sim.serving.triton.server_options import ServerOptions  # noqa: E402
from merlin_sim.serving.triton.standstill import Standstill  # noqa: E402

pytestmark = pytest.mark.timeout(300)
# What it does at each of its starts: aborts, exits, hangs, serves, or dies once it was ready; or
# dies and leaves a process that nothing but SIGKILL ends.
STAND_IN = """
import os, signal, socket, socketserver, sys, threading, time
from http.server import BaseHTTPRequestHandler

folder, *plan = sys.argv[1:]
with open(f"{folder}/starts", "a+") as starts:
    starts.write(".")
    starts.seek(0)
    act = plan[min(len(starts.read()), len(plan)) - 1]
if act == "abort":
    os.kill(os.getpid(), 6)
if act == "exit":
    sys.exit(3)
if act == "leave":
    read, write = os.pipe()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with open(f"{folder}/left", "w") as left:
            left.write(str(os.getpid()))
        os.write(write, b".")
        time.sleep(300)
    os.read(read, 1)
    os.kill(os.getpid(), 11)
if act == "hang":
    time.sleep(300)

class Ready(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def address_string(self):
        return ""
    def log_message(self, *arguments):
        pass

metrics = socket.socket(socket.AF_UNIX)
metrics.bind(f"{folder}/metrics")
metrics.listen()
with socketserver.UnixStreamServer(f"{folder}/http", Ready) as server:
    threading.Thread(target=server.serve_forever).start()
    if act == "die":
        metrics.accept()  # what whoever waits for it asks for last
        os.kill(os.getpid(), 11)
    threading.Event().wait()
"""


class StandIn(Server):
    """A server whose Triton does as it is told."""

    def plays(self, *plan: str) -> StandIn:
        self.plan = plan
        self.said: list[str] = []
        self._say = self.said.append
        return self

    def _command(self, files):
        return [sys.executable, "-c", STAND_IN, str(files), *self.plan]


def starts_said(server: StandIn) -> list[str]:
    """What was said of starts; it may name what servers of other tests left behind too."""
    return [line.split(": ")[-1] for line in server.said if "starting it again" in line]


@pytest.fixture
def stand_in(servable):
    return StandIn(servable, ServerOptions(http_port=0, grpc_port=0, metrics_port=0))


def test_one_that_a_signal_ends_at_start_is_tried_again(stand_in):
    with stand_in.plays("abort", "abort", "serve") as server:
        files = server._files.path
        assert (files / "starts").read_text() == "..."
        assert server.is_ready()
    assert starts_said(server) == ["starting it again (2 of 5)", "starting it again (3 of 5)"]
    assert not files.exists()


def test_one_that_stands_still_at_start_is_tried_again(stand_in, monkeypatch):
    class PatientWithTheSecond(Standstill):
        patiences = iter([1.0, 1000.0])

        def __init__(self, pid):
            super().__init__(pid)
            self.patience = next(self.patiences)

    monkeypatch.setattr(serve, "Standstill", PatientWithTheSecond)
    with stand_in.plays("hang", "serve") as server:
        assert server.is_ready()
    (said,) = [line for line in server.said if "starting it again" in line]
    assert said == "Triton did nothing for 1 s before it was ready: starting it again (2 of 5)"


def test_one_that_computes_or_reads_does_not_stand_still():
    now, done = [0.0], [(0.0, 0)]
    watched = Standstill(0, lambda pid: done[0], lambda: now[0])
    for second, work, still in [
        (59, (0.4, 0), False),
        (61, (0.6, 0), False),  # begins anew
        (120, (0.6, 1 << 19), False),
        (121.5, (0.6, 1 << 19), True),
        (122, (0.6, 2 << 20), False),
        (183, (0.1, 0), True),
        (184, (0.7, 0), False),
    ]:
        now[0], done[0] = second, work
        assert watched.lasts() == still


@pytest.mark.slow
def test_what_one_that_died_left_behind_is_ended(stand_in):
    with stand_in.plays("leave", "serve") as server:
        left = int((server._files.path / "left").read_text())
        until(lambda: not psutil.pid_exists(left))
    assert starts_said(server) == ["starting it again (2 of 5)"]


def test_one_that_never_starts_is_given_up(stand_in):
    message = r"by signal 6 \(SIGABRT\) before it was ready, 5 times \(what it said stands above"
    with pytest.raises(ServerError, match=message), stand_in.plays("abort"):
        pass


def test_one_that_exits_is_not_tried_again(stand_in):
    message = r"with exit code 3 before it was ready \(what it said"
    with pytest.raises(ServerError, match=message), stand_in.plays("exit", "serve"):
        pass
    assert starts_said(stand_in) == []


@pytest.mark.slow
def test_one_that_dies_is_started_again_until_it_is_enough(stand_in):
    said: list[str] = []
    stand_in.plays("die")
    with pytest.raises(ServerError, match=r"ended 5 times .* \(SIGSEGV\): it is not started again"):
        stand_in.run(said.append)
    again = [line for line in said if "which nobody asked for: starting it again" in line]
    assert len(again) == 4 and all("by signal 11 (SIGSEGV)" in line for line in again)
    assert len([line for line in said if line.startswith("ready:")]) == 5
    assert stand_in.process.ended() is not None and not stand_in._files.path.exists()
