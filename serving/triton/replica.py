"""One Triton with all of its models: started, prepared, watched by real requests, ended."""

from __future__ import annotations

import http.client
import secrets
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ..settings import ServerOptions
from ..workers.protocol import WORKER_NAME, probe_file, processes_of
from .triton_process import GRPC_SOCKET, HTTP, METRICS, OwnProcess

WARM_UPS = 3
"""Requests that each model answers through Triton before anybody else's."""
PROBE_EVERY = 1.0
"""Seconds between two requests by which a replica is watched."""
PROBE_SECONDS = 2.0
"""How long one may take before it is looked at whether anything moves."""
STANDSTILL_SECONDS = 15.0
"""How long a replica that is starting may do nothing."""
LOOKS_EVERY = 0.05
UNREADABLE = (psutil.Error, OSError, RuntimeError)
"""What psutil raises of a process that ends meanwhile, or where files cannot be opened."""
MOST_ERRORS = 5
"""Connections that may fail one after the other, while Triton lives."""


class ReplicaError(Exception):
    """A replica that did not start; the message says why."""


def is_broken(content: bytes) -> bool:
    """Whether Triton says that the process of a model has gone."""
    return b"Stub process" in content or b"is not healthy" in content


class _Connection(http.client.HTTPConnection):
    """To a socket in a folder."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("triton", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@dataclass(eq=False)
class Replica:
    """A Triton from its start to its end, watched by a thread. Making one starts it."""

    folder: Path
    """Of its own, with its models."""
    models: Sequence[str]
    start: Callable[[Path, str], OwnProcess]
    """Starts the process on that folder, given the token that manages it."""
    options: ServerOptions
    clear: Callable[[], None] = lambda: None
    """Lets go of what it had besides the folder, once it has ended."""
    is_ready: bool = field(init=False, default=False)
    has_answered: bool = field(init=False, default=False)
    """Whether it has answered anybody's request."""
    problem: str | None = field(init=False, default=None)
    """Why it cannot be asked any more; None as long as it can."""
    is_worth_another: bool = field(init=False, default=True)
    """Whether another start may go better."""

    def __post_init__(self) -> None:
        self.token = secrets.token_hex(16)
        self._suspected = threading.Event()
        self._is_ending = False
        self.process = self.start(self.folder, self.token)
        name = f"watch {self.folder.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def suspect(self) -> None:
        """Check it now: a request was not answered as it should be."""
        self._suspected.set()

    def end(self) -> None:
        """Let it answer what it has in hand, then end."""
        self._is_ending = True
        self._suspected.set()
        self.process.end()
        self._thread.join()
        self.remove()

    def kill(self) -> None:
        """End it at once, with all that it started."""
        self._is_ending = True
        self._suspected.set()
        workers = [pid for model in self.models for pid in processes_of(self.folder, model)]
        self.process.kill()
        for pid in workers:  # one that hangs, or is loading, does not see that no one waits
            with suppress(*UNREADABLE):
                if (worker := psutil.Process(pid)).name() == WORKER_NAME:
                    worker.kill()
        self._thread.join()
        self.remove()

    def remove(self) -> None:
        """Remove what it left."""
        self.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self) -> None:
        try:
            self._wait_until_it_answers()
            self.process.hide(self.token)
            for _ in range(WARM_UPS):
                for model in self.models:
                    self._warm_up(model)
            self.is_ready = True
            while self.problem is None and not self._is_ending:
                self._suspected.wait(PROBE_EVERY)
                self._suspected.clear()
                if not self._is_ending:
                    self.problem = self._find_problem()
        except ReplicaError as error:
            self.problem = str(error)
        except Exception as error:  # whatever it is, nobody watches it any more
            self.problem = f"{type(error).__name__}: {error}"
        self.is_ready = False

    def _wait_until_it_answers(self) -> None:
        end = time.monotonic() + self.options.start_timeout
        idleness = Idleness(self._processes)
        look_next = 0.0
        while not self._is_ending:
            if (code := self.process.ended()) is not None:
                # What exits says what is wrong, and would say it again; what a signal ends may not.
                self.is_worth_another = code < 0
                raise ReplicaError(f"Triton ended {describe_end(code)} before it was ready")
            if self._says_ready():
                return
            # Twice a second at most: to find what they started every process here is read.
            if time.monotonic() >= look_next:
                look_next = time.monotonic() + 0.5
                if idleness.lasted(STANDSTILL_SECONDS):
                    raise ReplicaError(
                        f"Triton did nothing for {STANDSTILL_SECONDS:.0f} s before it was ready"
                    )
            if time.monotonic() > end:
                raise ReplicaError(
                    f"Triton was not ready after {self.options.start_timeout:.0f} s "
                    "(`start_timeout`)"
                )
            time.sleep(LOOKS_EVERY)

    def _says_ready(self) -> bool:
        try:
            if self._ask("GET", "/v2/health/ready", None, PROBE_SECONDS)[0] != 200:
                return False
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(self.folder / METRICS))
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(self.folder / GRPC_SOCKET))
        except (OSError, http.client.HTTPException):
            return False
        return True

    def _warm_up(self, model: str) -> None:
        try:
            status, content = self._probe(model, self.options.start_timeout)
        except (OSError, http.client.HTTPException) as error:
            code = self.process.ended()
            how = repr(error) if code is None else f"Triton ended {describe_end(code)}"
            raise ReplicaError(f"{how} over the first request to {model!r}") from error
        if status >= 500 and b"not just now" not in content:
            raise ReplicaError(f"the model {model!r} did not answer its first request: {content!r}")

    def _find_problem(self) -> str | None:
        """Ask every model; say what is wrong where one is gone or stands still."""
        for model in self.models:
            if (problem := self._problem_of(model)) is not None:
                return None if self._is_ending else problem
        return None

    def _problem_of(self, model: str) -> str | None:
        idleness = Idleness(lambda: processes_of(self.folder, model))
        asked, errors = time.monotonic(), 0
        while not self._is_ending:
            if (code := self.process.code()) is not None:
                return f"Triton ended {describe_end(code)}"
            try:
                status, content = self._probe(model, PROBE_SECONDS)
            except TimeoutError:
                waited = time.monotonic() - asked
                if idleness.lasted(PROBE_SECONDS / 2):
                    return f"the model {model!r} stood still for {waited:.0f} s"
                if waited > self.options.request_timeout:
                    return f"the model {model!r} did not answer for {waited:.0f} s"
            except (OSError, http.client.HTTPException) as error:
                errors += 1
                if errors == MOST_ERRORS:
                    return f"Triton closes connections ({error!r})"
                time.sleep(LOOKS_EVERY)
            else:
                has_ended = status >= 500 and is_broken(content)
                return f"the process of the model {model!r} has ended" if has_ended else None
        return None

    def _probe(self, model: str, seconds: float) -> tuple[int, bytes]:
        request = probe_file(self.folder, model).read_bytes()
        return self._ask("POST", f"/v2/models/{model}/infer", request, seconds)

    def _ask(self, method: str, path: str, body: bytes | None, seconds: float) -> tuple[int, bytes]:
        connection = _Connection(self.folder / HTTP, seconds)
        try:
            connection.request(method, path, body, {"Connection": "close"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _processes(self) -> list[int]:
        """All of its processes: Triton, its stubs, their workers."""
        workers = [pid for model in self.models for pid in processes_of(self.folder, model)]
        return [*dict.fromkeys([self.process.pid, *workers])]


def describe_end(code: int) -> str:
    """How a process ended, for a sentence.

    >>> describe_end(-11), describe_end(1)
    ('by signal 11 (SIGSEGV)', 'with exit code 1')
    """
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"by signal {-code}"


_LEAST_SECONDS, _LEAST_BYTES = 0.05, 1 << 20
_BUSY = (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)


class Idleness:
    """Watches what processes, and those that they started, compute and read.

    On a machine that has far too much to do a process waits for its turn; it is not idle then.
    """

    def __init__(
        self,
        processes: Callable[[], Sequence[int]],
        clock: Callable[[], float] = time.monotonic,
        work: Callable[[Sequence[int]], tuple[float, int, bool]] | None = None,
    ) -> None:
        self._processes, self._clock, self._work = processes, clock, work or work_of
        self._done: tuple[float, int] = self._work(processes())[:2]
        self._since = clock()

    def lasted(self, seconds: float) -> bool:
        """Return whether nothing has been done for so long."""
        computed, read, is_busy = self._work(self._processes())
        before, read_before = self._done
        is_done = computed - before > _LEAST_SECONDS or read - read_before > _LEAST_BYTES
        if is_done or is_busy:
            self._done, self._since = (computed, read), self._clock()
        else:  # what a process did that has ended is not counted any more
            self._done = min(computed, before), min(read, read_before)
        return self._clock() - self._since >= seconds


def work_of(processes: Sequence[int]) -> tuple[float, int, bool]:
    """Add up what processes, and those that they started, computed and read."""
    seconds, read, is_busy = 0.0, 0, False
    for pid in processes:
        with suppress(*UNREADABLE):
            process = psutil.Process(pid)
            for each in [process, *process.children(recursive=True)]:
                with suppress(*UNREADABLE):
                    times = each.cpu_times()
                    seconds += times.user + times.system
                    read += each.io_counters().read_bytes
                    is_busy |= each.status() in _BUSY
    return seconds, read, is_busy
