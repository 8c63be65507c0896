"""A servable answered for by a Triton Inference Server until it is told to stop."""

from __future__ import annotations

import errno
import http.client
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...schemas.exceptions import MerlinSimError
from ..limits import Limits
from ..servable import Servable
from .bundled_server import (
    NOISE,
    Relay,
    ServerError,
    copy_backends,
    device_flags,
    find_triton,
    server_environment,
    start_process,
)
from .repository import EVENTS, IDS, write_bundled_repository

KILL_AFTER = 10.0


@dataclass(frozen=True)
class ServerOptions:
    """How the server is reached, and how long it may take."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all of this machine."""
    http_port: int = 8000
    """0 takes a free one."""
    grpc_port: int = 8001
    """0 takes a free one."""
    metrics_port: int = 8002
    """0 takes a free one."""
    limits: Limits = field(default_factory=Limits)
    start_timeout: float = 120.0
    """Seconds until it must be ready."""
    exit_timeout: int = 30
    """Seconds for requests in flight to be answered, once it is told to stop."""
    verbose: bool = False
    """Whether Triton tells more than warnings and errors."""

    def __post_init__(self) -> None:
        """Gather every problem, raise once."""
        ports = self.ports
        problems = [
            f"`{name}` should lie in 0..65535. Received: `{name}` = {port}."
            for name, port in ports.items()
            if not 0 <= port <= 65535
        ]
        named = [port for port in ports.values() if port]
        if len(set(named)) < len(named):
            received = ", ".join(f"`{name}` = {port}" for name, port in ports.items())
            problems.append(f"The ports should be different. Received: {received}.")
        for name in ("start_timeout", "exit_timeout"):
            if getattr(self, name) <= 0:
                problems.append(f"`{name}` should be positive. Received: {getattr(self, name)}.")
        if problems:
            raise MerlinSimError("\n".join(problems))

    @property
    def ports(self) -> dict[str, int]:
        """The ports as they were asked for."""
        return {name: getattr(self, name) for name in ("http_port", "grpc_port", "metrics_port")}


class Server:
    """A running server; use as a context manager, or :meth:`run` it.

    Args:
        servable: An opened servable; it is read where it lies and must stay there.
        options: See :class:`ServerOptions`.
    """

    def __init__(self, servable: Servable, options: ServerOptions) -> None:
        """Prepare; nothing is started yet."""
        self.servable = servable
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None
        ports = _settle_ports(options)
        self.http_port, self.grpc_port, self.metrics_port = ports
        self._relay: Relay | None = None
        self._files: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Server:
        """Start, and wait until both models are ready."""
        self.start()
        try:
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:
        """Start the process."""
        triton = find_triton()
        environment = server_environment(triton)
        self._files = tempfile.TemporaryDirectory(prefix="merlin-sim-serve-")
        files = Path(self._files.name)
        write_bundled_repository(self.servable, self.options.limits, files / "repository")
        copy_backends(triton, files / "backends")
        self.process = start_process(self._command(triton, files), environment)
        self._relay = Relay(self.process, () if self.options.verbose else NOISE)

    def _command(self, triton: Path, files: Path) -> list[str]:
        options, info = self.options, str(self.options.verbose).lower()
        flags = {
            "model-repository": files / "repository",
            "backend-directory": files / "backends",
            "http-address": options.host,
            "http-port": self.http_port,
            "grpc-address": options.host,
            "grpc-port": self.grpc_port,
            "metrics-address": options.host,
            "metrics-port": self.metrics_port,
            "exit-timeout-secs": options.exit_timeout,
            "log-info": info,
            # Its own patience with a model that is loading is 30 s; ours decides.
            "backend-config": f"python,stub-timeout-seconds={int(options.start_timeout) + 1}",
            "disable-auto-complete-config": None,
            **device_flags(),
        }
        given = [f"--{k}" if v is None else f"--{k}={v}" for k, v in flags.items()]
        return [str(triton / "bin" / "tritonserver"), *given]

    def is_ready(self) -> bool:
        """Ask the server whether both models can answer."""
        host = "127.0.0.1" if self.options.host == "0.0.0.0" else self.options.host
        connection = http.client.HTTPConnection(host, self.http_port, timeout=5)
        try:
            connection.request("GET", "/v2/health/ready", headers={"Connection": "close"})
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def wait_until_ready(self, asked_to_stop: Callable[[], bool] = lambda: False) -> None:
        """Wait until the server is ready.

        Raises:
            ServerError: Where it ends before, or takes too long.
        """
        assert self.process is not None
        end = time.monotonic() + self.options.start_timeout
        while not self.is_ready():
            if asked_to_stop():
                return
            if self.process.poll() is not None:
                self._finish_relay()
                raise ServerError(
                    f"Triton ended with exit code {self.process.returncode} before it was ready "
                    "(what it said stands above; --verbose lets it say more)."
                )
            if time.monotonic() > end:
                raise ServerError(
                    f"Triton was not ready after {self.options.start_timeout:.0f} s "
                    "(`start_timeout`)."
                )
            time.sleep(0.1)

    def stop(self) -> int:
        """Tell the server to stop: it answers what is in flight, then ends. Its exit code."""
        code = 0
        if self.process is not None:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            try:
                code = self.process.wait(self.options.exit_timeout + KILL_AFTER)
            except subprocess.TimeoutExpired:
                self.process.kill()
                code = self.process.wait()
        self._finish_relay()
        if self._files is not None:
            self._files.cleanup()
        return code

    def _finish_relay(self) -> None:
        if self._relay is not None:
            self._relay.finish()

    def run(self, say: Callable[[str], None]) -> int:
        """Serve until SIGTERM or SIGINT, or until the server ends by itself."""
        asked: list[int] = []
        handlers = {
            number: signal.signal(number, lambda received, frame: asked.append(received))
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            say("starting Triton and loading the models")
            self.start()
            assert self.process is not None
            self.wait_until_ready(lambda: bool(asked))
            if not asked:
                say(self.describe())
            while not asked and self.process.poll() is None:
                time.sleep(0.1)
            if asked:
                say("stopping: requests in flight are answered first")
                self.stop()
                return 0
            return self.stop() or 1
        finally:
            self.stop()
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def describe(self) -> str:
        """Where it is reached."""
        host = self.options.host
        return (
            f"ready: models `{IDS}` and `{EVENTS}` at http://{host}:{self.http_port} and "
            f"grpc {host}:{self.grpc_port}; metrics at http://{host}:{self.metrics_port}/metrics"
        )


def _settle_ports(options: ServerOptions) -> list[int]:
    """The ports, with free ones where 0 was given; one that is taken is told of now."""
    taken: list[int] = []
    with ExitStack() as stack:
        for name, port in options.ports.items():
            found = stack.enter_context(socket.socket())
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                found.bind((options.host, port))
            except OSError as error:
                raise ServerError(_cannot_listen(options.host, name, port, error)) from error
            taken.append(int(found.getsockname()[1]))
    return taken


def _cannot_listen(host: str, name: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"`{name}` = {port}: another process listens on {host}:{port}. Name another port, "
            "or 0 for a free one."
        )
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"`host` should be an address of this machine. Received: `host` = {host}."
    return f"`{name}` = {port}: cannot listen on {host}:{port}: {error.strerror}."
