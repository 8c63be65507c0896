"""A real Redis server, Debian's, on a socket in a folder."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


def redis_program() -> str:
    """The server; skips the test where there is none."""
    pytest.importorskip("redis")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("no redis-server (Debian's package of that name)")
    return program


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """Start it on what the folder holds; what it has answered outlives its process.

    Users have `appendfsync always`, for what the machine itself loses; no test ends the machine.
    """
    folder.mkdir(exist_ok=True)
    socket_path = folder / "s"
    words = ["--port", "0", "--unixsocket", socket_path, "--dir", folder, "--appendonly", "yes"]
    words += ["--appendfsync", "no"]
    process = subprocess.Popen(
        [redis_program(), *map(str, words), "--save", ""], stdout=subprocess.DEVNULL
    )
    try:
        _wait_for(socket_path, process)
        yield f"unix://{socket_path}?db=0", process
    finally:
        process.kill()
        process.wait()
        socket_path.unlink(missing_ok=True)


def _wait_for(socket_path: Path, process: subprocess.Popen) -> None:
    end = time.monotonic() + 100
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(socket_path))
            client.sendall(b"PING\r\n")
            if client.recv(64).startswith(b"+PONG"):
                return
        time.sleep(0.02)
    raise AssertionError("redis-server did not start")
