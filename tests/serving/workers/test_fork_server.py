"""Workers are forked for whoever asks, and none is left behind."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

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
    write_workers,
)

pytestmark = pytest.mark.timeout(120)
WORKER = "merlin_sim.serving.workers.ids_model.IdsModel"


@pytest.fixture
def folder(servable, tmp_path):
    ModelSettings(servable.path, version=3).write(tmp_path)
    write_workers(tmp_path, tmp_path / "fork", {"ids": WORKER})
    return tmp_path


@pytest.fixture
def fork_server(folder):
    command = [sys.executable, "-m", "merlin_sim.serving.workers.fork_server", folder / "fork"]
    process = subprocess.Popen([*map(str, command), WORKER.rpartition(".")[0]])
    try:
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


def asked(folder, worker=WORKER):
    """Ask for a worker; the connection, and its first message."""
    connection = socket.socket(socket.AF_UNIX)
    connected = []

    def connects():
        try:
            connection.connect(str(folder / "fork"))
        except OSError:
            return False
        connected.append(True)
        return True

    until(connects)
    send_frame(connection, {"folder": str(folder), "model": "ids", "worker": worker})
    return connection, receive_frame(connection).message


def test_a_worker_says_what_it_is_and_ends_with_its_connection(fork_server, folder):
    connection, ready = asked(folder)
    assert ready["kind"] == READY
    (worker,) = fork_server.children()
    assert worker.name() == WORKER_NAME and processes_of(folder, "ids") == [worker.pid]
    assert {entry["name"] for entry in json.loads(probe_file(folder, "ids").read_text())["inputs"]}
    connection.close()
    until(lambda: not worker.is_running())


def test_why_a_model_cannot_be_loaded_is_told(fork_server, folder):
    (folder / "settings.json").write_text("{}")
    connection, failed = asked(folder)
    with connection:
        assert failed["kind"] == FAILED and "KeyError" in failed["message"]


def test_it_ends_when_the_last_worker_has_and_takes_all_along_when_it_is_killed(
    fork_server, folder
):
    connection, _ = asked(folder)
    with connection:
        (worker,) = fork_server.children()
        fork_server.send_signal(signal.SIGTERM)
        with pytest.raises(psutil.TimeoutExpired):
            fork_server.wait(0.6)
        fork_server.kill()
        until(lambda: not worker.is_running())


STUB = """
import socket, sys, time
from merlin_sim.serving.workers.protocol import receive_frame, send_frame
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1] + "/fork")
send_frame(connection, {"folder": sys.argv[1], "model": "ids", "worker": sys.argv[2]})
receive_frame(connection)
open(sys.argv[1] + "/stub", "w").write("ready")
time.sleep(300)
"""


def test_a_stub_that_its_triton_left_behind_is_ended(fork_server, folder):
    """It may wait for Triton for ever, where nothing of Python's runs."""
    until(lambda: (folder / "fork").exists())
    words = [sys.executable, "-c", STUB, str(folder), WORKER]
    triton = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess; subprocess.run({words!r})"]
    )
    try:
        until(lambda: Path(folder / "stub").exists())
        (stub,) = psutil.Process(triton.pid).children()
        workers = fork_server.children()
        triton.kill()
        triton.wait()
        until(lambda: not stub.is_running())
        until(lambda: not any(worker.is_running() for worker in workers))
    finally:
        triton.kill()
