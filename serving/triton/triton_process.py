"""The process of a Triton server: how it is told what to do, started, watched and ended."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from .bundled_server import (
    NOISE,
    Relay,
    device_flags,
    find_triton,
    server_environment,
    start_process,
)
from .generations import REPOSITORY
from .server_files import HTTP, METRICS
from .server_options import ServerOptions

KILL_AFTER = 10.0


LOOKS_EVERY = 1
"""Seconds after which a server that looks at its models looks again."""


def triton_command(
    options: ServerOptions, grpc_port: int, files: Path, looks: bool = False
) -> list[str]:
    """Return the command of a server that finds its models in ``files`` and answers there.

    Args:
        options: How it is reached.
        grpc_port: As it was settled.
        files: The server's folder.
        looks: Whether it looks for other models from time to time. What it finds there it runs,
            and the folder is this user's alone. To be told of models by requests instead
            (``explicit``) would open that to all who reach it: gRPC leads to Triton directly.
    """
    flags = {
        "model-repository": files / REPOSITORY,
        "backend-directory": files / "backends",
        "http-address": f"unix:{files / HTTP}",
        "grpc-address": options.host,
        "grpc-port": grpc_port,
        "metrics-address": f"unix:{files / METRICS}",
        "exit-timeout-secs": options.exit_timeout,
        "log-info": str(options.verbose).lower(),
        "disable-auto-complete-config": None,
        **device_flags(),
    }
    if looks:
        flags |= {
            "model-control-mode": "poll",
            "repository-poll-secs": LOOKS_EVERY,
            # It answers while another version is loading, or could not be loaded.
            "strict-readiness": "false",
        }
    given = [f"--{k}" if v is None else f"--{k}={v}" for k, v in flags.items()]
    settings = {
        # Its own patience with a model that is loading is 30 s; ours decides.
        "stub-timeout-seconds": int(options.start_timeout) + 1,
        # Servers on one machine must not meet in each other's shared memory.
        "shm-region-prefix-name": files.name,
    }
    given += [f"--backend-config=python,{k}={v}" for k, v in settings.items()]
    return [str(find_triton() / "bin" / "tritonserver"), *given]


class TritonProcess:
    """A server that has been started, and what it writes.

    Args:
        command: As :func:`triton_command` makes it.
        options: How long it has to end, and whether all that it says is passed on.
        lock: A file descriptor that it holds as long as it or a child of it lives.
    """

    def __init__(self, command: list[str], options: ServerOptions, lock: int) -> None:
        """Start it."""
        self._process = start_process(command, server_environment(find_triton()), [lock])
        self._relay = Relay(self._process, () if options.verbose else NOISE)
        self._patience = options.exit_timeout + KILL_AFTER
        self._is_cleared = False

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def ended(self) -> int | None:
        """Return its exit code once it has ended and all that it wrote is passed on."""
        code = self._process.poll()
        if code is not None:
            self._end_group()
            self._relay.finish()
        return code

    def kill(self) -> None:
        """End it at once, with all that it started."""
        self._end_group()
        self._process.wait()

    def _end_group(self) -> None:
        """End all of its group: a model's process may wait for ever for a server that crashed.

        Once alone, as long as its number cannot be another's.
        """
        if self._is_cleared:
            return
        self._is_cleared = True
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # it has a group of its own

    def end(self) -> int:
        """Tell it to end: it answers what is in flight first. Returns its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(self._patience)
        except subprocess.TimeoutExpired:
            self.kill()
        code = self._process.wait()
        self._end_group()
        self._relay.finish()
        return code
