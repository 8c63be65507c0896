"""A servable answered for by a Triton Inference Server until it is told to stop."""

from __future__ import annotations

import http.client
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...histories.open_store import open_store, whole_address
from ..events.row_encoder import open_encoder
from ..page.home_page import Form, HomePage, Status, empty_event
from ..requests.appends import PATH as APPENDS
from ..requests.appends import Appends
from ..servables.servable import Servable
from .bundled_server import ServerError, copy_backends, find_triton
from .generations import REPOSITORY, Generations
from .ports import listen, settle_ports
from .repository import EVENTS, IDS, FurtherModel, Served, write_bundled_repository
from .restarts import Restarts, describe_end
from .server_files import HTTP, METRICS, ServerFiles, clear_abandoned
from .server_options import ServerOptions
from .standstill import Standstill
from .succession import Succession, Wanted, states_of
from .triton_process import TritonProcess, triton_command

if TYPE_CHECKING:
    from .front import Front

MOST_STARTS = 5
"""Tries until it is ready, where a signal ends it or it stands still: on a loaded machine its
Python backend may find a lock in shared memory broken (``boost::interprocess::lock_exception``)."""


class Server:
    """A running server; use as a context manager, or :meth:`run` it.

    Args:
        servable: An opened servable, which is read where it lies and must stay there; or what
            says which version should be served at any time.
        options: See :class:`ServerOptions`.
        further: Models that it has beside its own.
    """

    def __init__(
        self,
        servable: Servable | Callable[[], Wanted],
        options: ServerOptions,
        further: Sequence[FurtherModel] = (),
    ) -> None:
        """Prepare; nothing is started yet."""
        self.servable = servable
        self.further = further
        self.succession: Succession | None = None
        self.options = options
        self.process: TritonProcess | None = None
        ports = settle_ports(options)
        self.http_port, self.grpc_port, self.metrics_port = ports
        self._files: ServerFiles | None = None
        self._front: Front | None = None
        self._appends: Appends | None = None
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
        self._appends = self._open_histories()
        self._files = ServerFiles()
        self._write_models(self._files.path)
        copy_backends(find_triton(), self._files.path / "backends")
        self._front = self._open_front(self._files.path)
        self._launch()

    def _open_histories(self) -> Appends | None:
        """Open the store of histories, where there is one and the model reads histories."""
        if self.options.histories is None:
            return None
        servable = self._first()
        store = open_store(self.options.histories)
        open_encoder(servable, self.options.limits, store)  # refuses what has no use for one
        return Appends(store, [column.domain for column in servable.columns.targets])

    def _first(self) -> Servable:
        """What is served at the start."""
        if isinstance(self.servable, Servable):
            return self.servable
        return Servable.open(self.servable().servable, with_model=False)

    def _write_models(self, files: Path) -> None:
        limits, log = self.options.limits, self.options.request_log
        given = self.options.histories
        histories = None if given is None else whole_address(given)
        if log is not None:
            log.make_directory()

        def write(served: Served, directory: Path) -> None:
            write_bundled_repository(served, directory, log)
            for model in self.further:
                model.write(served, directory)

        if isinstance(self.servable, Servable):
            write(Served(self.servable, limits, histories=histories), files / REPOSITORY)
            return
        models = (IDS, EVENTS, *(model.name for model in self.further))
        self.succession = Succession(
            self.servable,
            Generations(files, models),
            lambda servable, wanted, canary, directory: write(
                Served(servable, limits, wanted.version, canary, histories), directory
            ),
            lambda: states_of(self._own_address, self.http_port),
            models,
            lambda message: self._say(message),
            self.options.start_timeout,
        )

    @property
    def _own_address(self) -> str:
        return "127.0.0.1" if self.options.host == "0.0.0.0" else self.options.host

    def _open_front(self, files: Path) -> Front:
        from .front import Detour, Door, Front  # aiohttp comes with the extra `serve`

        host = self.options.host
        with ExitStack() as stack:
            http = stack.enter_context(listen(host, "http_port", self.http_port))
            metrics = stack.enter_context(listen(host, "metrics_port", self.metrics_port))
            here = {} if self._appends is None else {APPENDS: self._appends.answer}
            told = None if self._appends is None else self._appends.counts.text
            to = {model.path: Detour(model.name, model.ask, model.tell) for model in self.further}
            pages = {"/": self._home_page((*here, *to)).answer}
            most = self.options.max_body << 20
            doors = [
                Door(http, files / HTTP, ("GET", "POST"), most, here, to, pages=pages),
                Door(metrics, files / METRICS, ("GET",), 1 << 16, added=told),
            ]
            front = Front(doors)
            stack.pop_all()
        return front

    def _home_page(self, answered_here: Sequence[str]) -> HomePage:
        keeps = self._appends is not None
        form = Form(empty_event(self._first(), keeps), keeps, "/recommend" in answered_here)
        return HomePage(lambda: Status(self.is_ready(), self._serves), self.options.told, form)

    @property
    def _serves(self) -> str:
        if self.succession is not None:
            return f"version {self.succession.serving}"
        assert isinstance(self.servable, Servable)
        return f"{self.servable.path.name} ({self.servable.manifest['model']['type']})"

    def _launch(self) -> None:
        assert self._files is not None
        self._files.clear_leftovers()
        self.process = TritonProcess(
            self._command(self._files.path), self.options, self._files.lock
        )

    def _command(self, files: Path) -> list[str]:
        looks = not isinstance(self.servable, Servable)
        return triton_command(self.options, self.grpc_port, files, looks)

    def is_ready(self) -> bool:
        """Ask the server whether both models can answer; its metrics come a moment later."""
        connection = http.client.HTTPConnection(self._own_address, self.http_port, timeout=5)
        try:
            connection.request("GET", "/v2/health/ready", headers={"Connection": "close"})
            return connection.getresponse().status == 200 and self._tells_metrics()
        except OSError:
            return False
        finally:
            connection.close()

    def _tells_metrics(self) -> bool:
        assert self._files is not None
        with socket.socket(socket.AF_UNIX) as door:
            door.connect(str(self._files.path / METRICS))  # OSError: not yet
        return True

    def wait_until_ready(self, asked_to_stop: Callable[[], bool] = lambda: False) -> None:
        """Wait until the server is ready.

        One that a signal ends, or that stands still, is started again, within bounds.

        Raises:
            ServerError: Where it ends before, or takes too long.
        """
        assert self.process is not None
        end = time.monotonic() + self.options.start_timeout
        starts = 1
        standstill = Standstill(self.process.pid)
        while not self.is_ready():
            if asked_to_stop():
                return
            stood_still = standstill.lasts()
            if stood_still:
                self.process.kill()
            if (code := self.process.ended()) is not None:
                still = f"did nothing for {standstill.patience:.0f} s"
                how = still if stood_still else f"ended {describe_end(code)}"
                ended = f"Triton {how} before it was ready"
                if code >= 0 or starts == MOST_STARTS:
                    times = f", {starts} times" if starts > 1 else ""
                    raise ServerError(
                        f"{ended}{times} (what it said stands above; --verbose lets it say more)."
                    )
                starts += 1
                self._say(f"{ended}: starting it again ({starts} of {MOST_STARTS})")
                self._launch()
                standstill = Standstill(self.process.pid)
            if time.monotonic() > end:
                raise ServerError(
                    f"Triton was not ready after {self.options.start_timeout:.0f} s "
                    "(`start_timeout`)."
                )
            time.sleep(0.1)

    def stop(self) -> int:
        """Tell the server to stop: it answers what is in flight, then ends. Its exit code."""
        if self._front is not None:
            self._front.refuse_new()
        code = self.process.end() if self.process is not None else 0
        if self._front is not None:
            self._front.close()
        if self._appends is not None:
            self._appends.close()
            self._appends = None
        if self._files is not None:
            self._files.remove()
        return code

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
            while (code := self.process.ended()) is None:
                if asked_to_stop():
                    return
                if self.succession is not None:
                    self.succession.look()
                time.sleep(0.1)
            if asked_to_stop():
                return
            restarts.count(code)
            ended = describe_end(code)
            self._say(f"Triton ended {ended}, which nobody asked for: starting it again")
            if self.succession is not None:
                self.succession.triton_ended()
            self._launch()

    def describe(self) -> str:
        """Where it is reached."""
        host = self.options.host
        following = self.succession
        version = "" if following is None else f" of version {following.serving}"
        return (
            f"ready: models `{IDS}` and `{EVENTS}`{version} at http://{host}:{self.http_port} and "
            f"grpc {host}:{self.grpc_port}; metrics at http://{host}:{self.metrics_port}/metrics"
            f"{'' if self._appends is None else f'; interactions to {APPENDS}'}"
            f"{''.join(f'; `{model.name}` at {model.path}' for model in self.further)}"
        )
