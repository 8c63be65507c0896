"""The process of a Triton server: how it is told what to do, started, watched and ended."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
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
from .server_options import ServerOptions

KILL_AFTER = 10.0
REPOSITORY = "repository"
HTTP, GRPC, METRICS = "http", "grpc", "metrics"
"""Names of the sockets on which Triton listens."""
GRPC_SOCKET = f"{GRPC}:1"
"""Triton makes one name of a folder's socket and a port."""
MANAGEMENT = (
    "model-repository,model-config,shared-memory,statistics,trace,logging"  # not: health, metadata
)
"""What of Triton is for whoever has the token, as the server itself has; it uses none of it."""
TOKEN_HEADER = "x-merlin-sim-token"


def triton_command(
    options: ServerOptions, folder: Path, backends: Path, name: str, token: str
) -> list[str]:
    """Return the command of a server that finds its models in ``folder`` and answers there.

    It listens on sockets in that folder alone, which only this user can enter.

    Args:
        options: How long it may take.
        folder: Has the models; gets the sockets.
        backends: The folder of Triton's backends.
        name: Of its shared memory: servers on one machine must not meet there.
        token: Opens what manages it.
    """
    flags = {
        "model-repository": folder / REPOSITORY,
        "model-control-mode": "none",
        "backend-directory": backends,
        "http-address": f"unix:{folder / HTTP}",
        "grpc-address": f"unix:{folder / GRPC}",
        "grpc-port": 1,
        "metrics-address": f"unix:{folder / METRICS}",
        "http-restricted-api": f"{MANAGEMENT}:{TOKEN_HEADER}={token}",
        "grpc-restricted-protocol": f"{MANAGEMENT}:{TOKEN_HEADER}={token}",
        "exit-timeout-secs": options.exit_timeout,
        "log-info": str(options.verbose).lower(),
        "disable-auto-complete-config": None,
        **device_flags(),
    }
    given = [f"--{k}" if v is None else f"--{k}={v}" for k, v in flags.items()]
    settings = {
        # Its own patience with a model that is loading is 30 s; ours decides.
        "stub-timeout-seconds": int(options.start_timeout) + 1,
        "shm-region-prefix-name": name,
    }
    given += [f"--backend-config=python,{k}={v}" for k, v in settings.items()]
    return [str(find_triton() / "bin" / "tritonserver"), *given]


class OwnProcess:
    """A process that has been started in a group of its own, and what it writes.

    Args:
        command: What to run.
        lock: A file descriptor that it holds as long as it or a child of it lives.
        patience: Seconds that it has to end once it is told to.
        hidden: Lines with one of these are not passed on.
    """

    def __init__(
        self, command: Sequence[str], lock: int, patience: float, hidden: Sequence[bytes] = ()
    ) -> None:
        """Start it."""
        self._process = start_process([*command], server_environment(find_triton()), [lock])
        self._relay = Relay(self._process, hidden)
        self._patience = patience
        self._is_cleared = False

    @classmethod
    def triton(cls, command: Sequence[str], options: ServerOptions, lock: int) -> OwnProcess:
        """Start a Triton; see :func:`triton_command`."""
        hidden = () if options.verbose else NOISE
        return cls(command, lock, options.exit_timeout + KILL_AFTER, hidden)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def code(self) -> int | None:
        """Return its exit code once it has ended; what it wrote may not be passed on yet."""
        return self._process.poll()

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
        self._relay.finish()

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
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(self._patience)
        self._end_group()
        code = self._process.wait()
        self._relay.finish()
        return code

    def hide(self, secret: str) -> None:
        """Overwrite a secret in the command that `ps` shows, once the process has read it."""
        with suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
            begin, end = int(fields[45]), int(fields[46])  # arg_start and arg_end of proc(5)
            with open(f"/proc/{self.pid}/mem", "r+b", buffering=0) as memory:
                memory.seek(begin)
                arguments = memory.read(end - begin)
                memory.seek(begin)
                memory.write(arguments.replace(secret.encode(), b"*" * len(secret)))
