"""Workers are forked for whoever asks, and none is left behind."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from held_server import until

from merlin_sim.serving.settings import ModelSettings
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
WORKER = "merlin_sim.serving.workers.ids_model.IdsModel"


@pytest.fixture
def folder(servable, tmp_path):
    ModelSettings(servable.path, version=3, workers={"ids": WORKER}).write(tmp_path)
    return tmp_path


@contextmanager
def started(place):
    """Start a fork server in a folder of its own."""
    address = place / "fork"
    command = [sys.executable, "-m", "merlin_sim.serving.workers.fork_server", str(address)]
    process = subprocess.Popen([*command, WORKER.rpartition(".")[0]])
    try:
        yield SimpleNamespace(process=psutil.Process(process.pid), address=address)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def fork_server(tmp_path_factory):
    with started(tmp_path_factory.mktemp("fork")) as server:
        yield server
        until(lambda: not server.process.children())


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


def test_a_worker_says_what_it_is_and_ends_with_its_connection(fork_server, folder):
    connection, ready = asked(fork_server, folder)
    assert ready["kind"] == READY
    (pid,) = processes_of(folder, "ids")
    worker = psutil.Process(pid)
    assert worker in fork_server.process.children()
    assert worker.name() == WORKER_NAME
    assert {entry["name"] for entry in json.loads(probe_file(folder, "ids").read_text())["inputs"]}
    connection.close()
    until(lambda: not worker.is_running())


def test_why_a_model_cannot_be_loaded_is_reported(fork_server, folder):
    (folder / "settings.json").write_text("{}")
    connection, failed = asked(fork_server, folder)
    with connection:
        assert failed["kind"] == FAILED and "KeyError" in failed["message"]


def test_it_ends_when_the_last_worker_has_and_takes_all_along_when_it_is_killed(folder, tmp_path):
    (tmp_path / "own").mkdir()
    with started(tmp_path / "own") as server:
        connection, _ = asked(server, folder)
        with connection:
            (worker,) = server.process.children()
            server.process.send_signal(signal.SIGTERM)
            with pytest.raises(psutil.TimeoutExpired):
                server.process.wait(0.6)
            server.process.kill()
            until(lambda: not worker.is_running())


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
