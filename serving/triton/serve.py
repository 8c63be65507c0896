"""A servable answered for by a Triton Inference Server until it is told to stop."""

from __future__ import annotations

import http.client
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..servables.servable import Servable
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
from .ports import listen, settle_ports
from .repository import EVENTS, IDS, write_bundled_repository
from .restarts import Restarts, describe_end
from .server_files import HTTP, METRICS, ServerFiles, clear_abandoned
from .server_options import ServerOptions

if TYPE_CHECKING:
    from .front import Front

KILL_AFTER = 10.0
MOST_STARTS = 5
"""Tries until it is ready, where a signal ends it: on a loaded machine its Python backend may find
a lock in shared memory broken (``boost::interprocess::lock_exception``)."""


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
        ports = settle_ports(options)
        self.http_port, self.grpc_port, self.metrics_port = ports
        self._relay: Relay | None = None
        self._files: ServerFiles | None = None
        self._front: Front | None = None
        self._say: Callable[[str], None] = lambda message: None

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
        """Start the process, and what stands before it."""
        find_triton()
        if cleared := clear_abandoned():
            names = ", ".join(map(str, cleared))
            self._say(f"cleared what a server that was killed had left: {names}")
        self._files = ServerFiles()
        write_bundled_repository(
            self.servable, self.options.limits, self._files.path / "repository"
        )
        copy_backends(find_triton(), self._files.path / "backends")
        self._front = self._open_front(self._files.path)
        self._launch()

    def _open_front(self, files: Path) -> Front:
        from .front import Door, Front  # aiohttp comes with the extra `serve`

        host = self.options.host
        with ExitStack() as stack:
            http = stack.enter_context(listen(host, "http_port", self.http_port))
            metrics = stack.enter_context(listen(host, "metrics_port", self.metrics_port))
            doors = [
                Door(http, files / HTTP, ("GET", "POST"), self.options.max_body << 20),
                Door(metrics, files / METRICS, ("GET",), 1 << 16),
            ]
            front = Front(doors)
            stack.pop_all()
        return front

    def _launch(self) -> None:
        assert self._files is not None
        triton = find_triton()
        self._files.clear_leftovers()
        command = self._command(triton, self._files.path)
        self.process = start_process(command, server_environment(triton), [self._files.lock])
        self._relay = Relay(self.process, () if self.options.verbose else NOISE)

    def _command(self, triton: Path, files: Path) -> list[str]:
        options, info = self.options, str(self.options.verbose).lower()
        flags = {
            "model-repository": files / "repository",
            "backend-directory": files / "backends",
            "http-address": f"unix:{files / HTTP}",
            "grpc-address": options.host,
            "grpc-port": self.grpc_port,
            "metrics-address": f"unix:{files / METRICS}",
            "exit-timeout-secs": options.exit_timeout,
            "log-info": info,
            "disable-auto-complete-config": None,
            **device_flags(),
        }
        given = [f"--{k}" if v is None else f"--{k}={v}" for k, v in flags.items()]
        settings = {
            # Its own patience with a model that is loading is 30 s; ours decides.
            "stub-timeout-seconds": int(options.start_timeout) + 1,
            # Servers on one machine must not meet in each other's shared memory.
            "shm-region-prefix-name": files.name,
        }
        given += [f"--backend-config=python,{k}={v}" for k, v in settings.items()]
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
        """Wait until the server is ready; one that a signal ends is started again, within bounds.

        Raises:
            ServerError: Where it ends before, or takes too long.
        """
        assert self.process is not None
        end = time.monotonic() + self.options.start_timeout
        starts = 1
        while not self.is_ready():
            if asked_to_stop():
                return
            if (code := self.process.poll()) is not None:
                self._finish_relay()
                ended = f"Triton ended {describe_end(code)} before it was ready"
                if code >= 0 or starts == MOST_STARTS:
                    times = f", {starts} times" if starts > 1 else ""
                    raise ServerError(
                        f"{ended}{times} (what it said stands above; --verbose lets it say more)."
                    )
                starts += 1
                self._say(f"{ended}: starting it again ({starts} of {MOST_STARTS})")
                self._launch()
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
            if self._front is not None:
                self._front.refuse_new()
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            try:
                code = self.process.wait(self.options.exit_timeout + KILL_AFTER)
            except subprocess.TimeoutExpired:
                self.process.kill()
                code = self.process.wait()
        self._finish_relay()
        if self._front is not None:
            self._front.close()
        if self._files is not None:
            self._files.remove()
        return code

    def _finish_relay(self) -> None:
        if self._relay is not None:
            self._relay.finish()

    def run(self, say: Callable[[str], None]) -> int:
        """Serve until SIGTERM or SIGINT; a server that ends by itself is started again.

        Raises:
            ServerError: Where it does not start, or ends again and again.
        """
        asked: list[int] = []
        handlers = {
            number: signal.signal(number, lambda received, frame: asked.append(received))
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        self._say = say
        try:
            say("starting Triton and loading the models")
            self.start()
            self._serve(lambda: bool(asked))
            say("stopping: requests in flight are answered first")
            self.stop()
            return 0
        finally:
            self.stop()
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _serve(self, asked_to_stop: Callable[[], bool]) -> None:
        restarts = Restarts()
        while True:
            self.wait_until_ready(asked_to_stop)
            if not asked_to_stop():
                self._say(self.describe())
            assert self.process is not None
            while self.process.poll() is None:
                if asked_to_stop():
                    return
                time.sleep(0.1)
            self._finish_relay()
            if asked_to_stop():
                return
            restarts.count(self.process.returncode)
            ended = describe_end(self.process.returncode)
            self._say(f"Triton ended {ended}, which nobody asked for: starting it again")
            self._launch()

    def describe(self) -> str:
        """Where it is reached."""
        host = self.options.host
        return (
            f"ready: models `{IDS}` and `{EVENTS}` at http://{host}:{self.http_port} and "
            f"grpc {host}:{self.grpc_port}; metrics at http://{host}:{self.metrics_port}/metrics"
        )
