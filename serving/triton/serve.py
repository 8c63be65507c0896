"""A servable answered for by a Triton Inference Server until it is asked to stop."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from ...foundation.exceptions import MerlinSimError
from ..appends import PATH as APPENDS
from ..appends import Appends, open_served_store
from ..histories.open_store import whole_address
from ..home_page import Form, HomePage, empty_event
from ..servable import Servable, hold
from ..settings import ModelSettings, ServerOptions
from ..versions import ServedVersion, user_of_events
from .admission import Access, tls_context
from .replica import Replica
from .replicas import Replicas
from .repository import EVENTS, IDS, RELAY, TritonModel, own_models, write_model
from .server_files import ServerFiles, clear_abandoned, listen, settle_ports
from .triton_process import (
    KILL_AFTER,
    NOISE,
    REPOSITORY,
    OwnProcess,
    ServerError,
    copy_backends,
    find_triton,
    triton_command,
)

if TYPE_CHECKING:
    from aiohttp import web

    from ..home_page import Section
    from .front import Front, OwnRoute

LOOKS_EVERY = 0.05
BACKENDS, FORK_SERVER, METRICS = "backends", "fork", "metrics"
_FORK_SERVER = "merlin_sim.serving.workers.fork_server"
_FORK_PATIENCE = 70.0
FORK_PAUSE = 5.0
"""Seconds after which a start of the process that forks models is tried again."""


class Endpoint(Protocol):
    """A model that a server has besides its own, asked in plain JSON at a path of its own."""

    name: str
    path: str
    """Where it is asked over HTTP."""
    settings: dict[str, Any]
    """The settings of its worker, under its name."""

    def model(self, servable: Servable, canary: Servable | None, keeps: bool) -> TritonModel:
        """Describe it for what is served."""

    async def answer(self, front: Front, body: bytes) -> web.Response:
        """Answer a POST."""


class Server:
    """A running server; use as a context manager, or :meth:`run` it.

    Args:
        servable: An opened servable, which is read where it lies and must stay there; or what
            says which version should be served at any time.
        options: See :class:`ServerOptions`.
        endpoints: Models that it has besides its own.
        sections: What the page at the root has besides what the server knows itself.
    """

    def __init__(
        self,
        servable: Servable | Callable[[], ServedVersion],
        options: ServerOptions,
        endpoints: Sequence[Endpoint] = (),
        sections: Callable[[], Sequence[Section]] = tuple,
    ) -> None:
        """Prepare; nothing is started yet."""
        if isinstance(servable, Servable):
            servable = functools.partial(ServedVersion, servable.path)
        self._current = servable
        self.endpoints, self.options, self._sections = endpoints, options, sections
        ports = settle_ports(options)
        self.http_port, self.grpc_port, self.metrics_port = ports
        self._closing = ExitStack()
        """What :meth:`start` has opened."""
        self._files: ServerFiles
        self._fork_server: OwnProcess
        self._next_fork_server = 0.0
        """When it may be started again."""
        self._appends: Appends | None = None
        self.replicas: Replicas | None = None
        self._say: Callable[[str], None] = lambda message: None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Server:
        """Start, and wait until all models are ready; it is looked after by a thread."""
        try:
            self.start()
            self._wait_until_ready(lambda: False)
        except BaseException:
            self.stop()
            raise
        self._thread = threading.Thread(target=self._look_until_ended, name="server", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()

    def start(self) -> None:
        """Start the processes, and what stands before them."""
        find_triton()
        if cleared := clear_abandoned():
            names = ", ".join(map(str, cleared))
            self._say(f"cleared what a server that was killed had left: {names}")
        first = self._first()
        if self.options.log.log_requests is not None:
            self.options.log.make_directory()
        registry, closing = CollectorRegistry(), self._closing
        self._files = ServerFiles()
        closing.callback(self._files.remove)
        if self.options.histories is not None:
            store = open_served_store(self.options.histories, first)
            self._appends = Appends.of(first, store, registry)
            closing.callback(self._appends.close)
        (self._files.path / METRICS).mkdir()
        MultiProcessCollector(registry, str(self._files.path / METRICS))  # type: ignore[no-untyped-call]
        copy_backends(find_triton(), self._files.path / BACKENDS)
        front = self._open_front(first, registry)
        closing.callback(front.close)
        self._start_fork_server()
        closing.callback(lambda: self._fork_server.end())
        self.replicas = Replicas(
            self._current, self._start_replica, front.switch, lambda m: self._say(m),
            self.options.standby,
        )  # fmt: skip
        closing.callback(self.replicas.stop)
        closing.callback(front.refuse_new)

    def _start_fork_server(self) -> None:
        modules = {m.worker.rpartition(".")[0] for m in self._models(self._first(), None)}
        command = [sys.executable, "-m", _FORK_SERVER, str(self._files.path / FORK_SERVER)]
        command += ["tensorflow", *sorted(modules)]
        variables = {"PROMETHEUS_MULTIPROC_DIR": str(self._files.path / METRICS)}
        self._fork_server = OwnProcess(
            command, self._files.lock, _FORK_PATIENCE, variables=variables
        )

    def _first(self) -> Servable:
        return Servable.open(self._current().servable, with_model=False)

    def _models(self, servable: Servable, canary: Servable | None) -> list[TritonModel]:
        keeps = self.options.histories is not None
        more = [model.model(servable, canary, keeps) for model in self.endpoints]
        return [*own_models(servable, self._current().version is not None), *more]

    def _start_replica(self, version: ServedVersion) -> Replica:
        servable = Servable.open(version.servable)
        canary = None
        if version.canary is not None and version.canary_servable is not None:
            user_of_events(servable)  # a canary is chosen by users
            canary = Servable.open(version.canary_servable)
        models = self._models(servable, canary)
        given = self.options.histories
        settings = ModelSettings(
            servable.path.resolve(),
            version.version,
            version.canary,
            None if canary is None else canary.path.resolve(),
            self.options.limits,
            None if given is None else whole_address(given),
            self.options.log,
            {model.name: model.settings for model in self.endpoints},
            {model.name: model.worker for model in models},
            str(self._files.path / FORK_SERVER),
        )
        files = self._files
        with ExitStack() as stack:
            for path in version.paths:
                stack.callback(os.close, hold(path))
            folder = files.next_replica()
            stack.callback(files.clear, folder)
            for model in models:
                write_model(folder / REPOSITORY, model, RELAY, settings.number)
            settings.write(folder)
            names = [model.name for model in models]
            replica = Replica(folder, names, self._start_triton, self.options)
            # What it has stays until it has ended.
            replica.clear = stack.pop_all().close
        return replica

    def _start_triton(self, folder: Path, token: str) -> OwnProcess:
        options = self.options
        hidden = () if options.verbose else NOISE
        patience = options.exit_timeout + KILL_AFTER
        return OwnProcess(self._command(folder, token), self._files.lock, patience, hidden)

    def _command(self, folder: Path, token: str) -> list[str]:
        name = self._files.shared_memory_of(folder)
        return triton_command(self.options, folder, self._files.path / BACKENDS, name, token)

    def _open_front(self, first: Servable, registry: CollectorRegistry) -> Front:
        from .front import Front, FrontLimits, Listeners  # aiohttp comes with the extra `serve`

        options = self.options
        access = Access.read(options.token_file)
        if options.tls is not None:
            tls_context(*options.tls)  # says what is wrong before anything is started
        routes: dict[str, OwnRoute] = {model.path: model.answer for model in self.endpoints}
        if self._appends is not None:
            routes[APPENDS] = self._appends.answer_front
        with ExitStack() as stack:
            http = stack.enter_context(listen(options.host, "http_port", self.http_port))
            metrics = stack.enter_context(listen(options.host, "metrics_port", self.metrics_port))
            grpc = f"{options.grpc_host}:{self.grpc_port}"
            listeners = Listeners(http, metrics, grpc, access, options.tls)
            bounds = FrontLimits(
                options.max_body << 20, options.max_requests, options.request_timeout
            )
            keeps = self._appends is not None
            form = Form(empty_event(first, keeps), keeps, "/recommend" in routes)
            page = HomePage(lambda: (self.is_ready(), self._serves), self._sections, form)
            front = Front(listeners, bounds, routes, page.answer, registry)
            stack.pop_all()
        return front

    @property
    def _serves(self) -> str:
        assert self.replicas is not None
        serving = self.replicas.serving
        if serving.version is not None:
            return f"version {serving}"
        return f"{serving.servable.name} ({self._first().manifest['model']['type']})"

    def is_ready(self) -> bool:
        """Return whether all models can answer."""
        return self.replicas is not None and self.replicas.active is not None

    def look(self) -> None:
        """See what has happened, and do what is to be done about it."""
        assert self.replicas is not None
        code = self._fork_server.ended()
        if code is not None and time.monotonic() >= self._next_fork_server:
            self._say(f"the process that forks models ended with {code}: starting it again")
            try:
                self._start_fork_server()
            except (MerlinSimError, OSError) as error:
                self._next_fork_server = time.monotonic() + FORK_PAUSE
                self._say(f"the process that forks models cannot be started: {error}")
        self.replicas.look()

    def _wait_until_ready(self, asked_to_stop: Callable[[], bool]) -> None:
        while not self.is_ready() and not asked_to_stop():
            self.look()
            time.sleep(LOOKS_EVERY)

    def _look_until_ended(self) -> None:
        try:
            while not self._ending.wait(LOOKS_EVERY):
                self.look()
        except ServerError as error:
            self._say(str(error))

    def stop(self) -> None:
        """Ask the server to stop: it answers what is in flight, then ends."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._closing.close()
        self.replicas = None

    def run(self, say: Callable[[str], None]) -> int:
        """Serve until SIGTERM or SIGINT; what ends by itself is replaced."""
        asked: list[int] = []
        handlers = {
            number: signal.signal(number, lambda received, frame: asked.append(received))
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        self._say = say
        try:
            say("starting Triton and loading the models")
            self.start()
            while not asked:
                self._wait_until_ready(lambda: bool(asked))
                if not asked:
                    say(self.describe())
                while not asked and self.is_ready():
                    self.look()
                    time.sleep(LOOKS_EVERY)
            say("stopping: requests in flight are answered first")
            self.stop()
            return 0
        finally:
            self.stop()
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def describe(self) -> str:
        """Describe where the server is reached."""
        assert self.replicas is not None
        host, serving = self.options.host, self.replicas.serving
        scheme = "http" if self.options.tls is None else "https"
        version = "" if serving.version is None else f" of version {serving}"
        return (
            f"ready: models `{IDS}` and `{EVENTS}`{version} at {scheme}://{host}:{self.http_port} "
            f"and grpc {self.options.grpc_host}:{self.grpc_port}; metrics at "
            f"{scheme}://{host}:{self.metrics_port}/metrics"
            f"{'' if self._appends is None else f'; interactions to {APPENDS}'}"
            f"{''.join(f'; `{model.name}` at {model.path}' for model in self.endpoints)}"
        )
