"""Workers are forked for whoever asks, and none is left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from held_server import until

from merlin_sim.serving.settings import ModelSettings
from merlin_sim.serving.workers.fork_server import ForkServer
from merlin_sim.serving.workers.protocol import (
    FAILED,
    READY,
    WORKER_NAME,
    probe_file,
    processes_of,
    receive_frame,
    send_frame,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
LIGHT_MODEL = """
import numpy as np

class LightModel:
    merges = True
    def __init__(self, settings):
        pass
    def probe(self):
        return {"ids": np.zeros(1)}
    def take(self, requests, reply):
        for index in range(len(requests)):
            reply(index, {})
    def close(self):
        pass
"""
"""A model without TensorFlow, which is slow to import."""


@pytest.fixture
def folder(tmp_path):
    ModelSettings(tmp_path, version=3, workers={"ids": "light.LightModel"}).write(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def fork_server(tmp_path_factory):
    """A fork server in a folder of its own; it ends with the last worker, or takes all along."""
    folder = tmp_path_factory.mktemp("fork")
    (folder / "light.py").write_text(LIGHT_MODEL)
    command = [sys.executable, "-m", "merlin_sim.serving.workers.fork_server"]
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [*command, str(folder / "fork"), "light"], env={**os.environ, "PYTHONPATH": path}
    )
    server = SimpleNamespace(process=psutil.Process(process.pid), address=folder / "fork")
    try:
        yield server
        until(lambda: not server.process.children())
        ModelSettings(folder, version=3, workers={"ids": "light.LightModel"}).write(folder)
        connection, _ = asked(server, folder)
        with connection:
            (worker,) = server.process.children()
            process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.6)
            process.kill()
            until(lambda: not worker.is_running())
    finally:
        process.kill()
        process.wait()


def asked(server, folder):
    """Ask for a worker; the connection, and its first message."""
    connection = socket.socket(socket.AF_UNIX)

    def connects():
        try:
            connection.connect(str(server.address))
        except OSError:
            return False
        return True

    until(connects)
    send_frame(connection, {"folder": str(folder), "model": "ids"})
    return connection, receive_frame(connection).message


def test_a_worker_says_what_it_is_or_why_it_is_none_and_ends_with_its_connection(
    fork_server, folder
):
    connection, ready = asked(fork_server, folder)
    assert ready["kind"] == READY
    (pid,) = processes_of(folder, "ids")
    worker = psutil.Process(pid)
    assert worker in fork_server.process.children()
    assert worker.name() == WORKER_NAME
    (probe,) = json.loads(probe_file(folder, "ids").read_text())["inputs"]
    assert probe["name"] == "ids"
    connection.close()
    until(lambda: not worker.is_running())
    (folder / "settings.json").write_text("{}")
    connection, failed = asked(fork_server, folder)
    with connection:
        assert failed["kind"] == FAILED and "KeyError" in failed["message"]


STUB = """
import socket, sys, time
from merlin_sim.serving.workers.protocol import receive_frame, send_frame
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[2])
send_frame(connection, {"folder": sys.argv[1], "model": "ids"})
receive_frame(connection)
open(sys.argv[1] + "/stub", "w").write("ready")
time.sleep(300)
"""


def test_a_stub_that_its_triton_left_behind_is_ended(fork_server, folder):
    """It may wait for Triton for ever, where nothing of Python's runs."""
    until(fork_server.address.exists)
    words = [sys.executable, "-c", STUB, *map(str, (folder, fork_server.address))]
    triton = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess; subprocess.run({words!r})"]
    )
    try:
        until(lambda: Path(folder / "stub").exists())
        (stub,) = psutil.Process(triton.pid).children()
        workers = [psutil.Process(pid) for pid in processes_of(folder, "ids")]
        assert workers
        triton.kill()
        triton.wait()
        until(lambda: not stub.is_running())
        until(lambda: not any(worker.is_running() for worker in workers))
    finally:
        triton.kill()


def stat(parent, started):
    """What the system says of a process: the start is its 22nd field."""
    return f"7 (stub (of) x) S {parent} {' 0' * 17} {started} 0"


@pytest.mark.parametrize(
    "states, is_killed",
    [
        ([stat(5, 100), stat(5, 100)], False),
        ([stat(5, 100), stat(1, 100)], True),
        ([stat(5, 100), None, stat(1, 100)], False),
        ([stat(5, 100), stat(9, 200)], False),  # a stranger has its number
        ([None, stat(9, 200), stat(1, 200)], False),  # it was gone before it got a worker
    ],
)
def test_nothing_is_ended_but_what_asked_for_a_worker(states, is_killed, tmp_path, monkeypatch):
    read_text, killed, now = Path.read_text, [], [None]

    def read(path, *arguments):
        if path != Path(f"/proc/{os.getpid()}/stat"):
            return read_text(path, *arguments)
        if now[0] is None:
            raise FileNotFoundError(path)
        return now[0]

    def no_child(process, options):
        raise ChildProcessError

    server = ForkServer(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as asking, monkeypatch.context() as patch:
        asking.connect(str(tmp_path / "s"))
        connection, _ = server._listener.accept()
        patch.setattr(Path, "read_text", read)
        patch.setattr(os, "fork", lambda: 1 << 30)
        patch.setattr(os, "waitpid", no_child)
        patch.setattr(os, "kill", lambda process, number: killed.append(process))
        now[0] = states[0]
        with connection:
            server._fork(connection)
        for now[0] in states[1:]:
            server._look()
            server._look()
    server._listener.close()
    assert killed == [os.getpid()] * is_killed
