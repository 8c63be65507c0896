"""Notices a rank that died or hangs, names it, and ends the run on every rank.

Horovod's collective operations wait for ranks that never come, or fail without saying which was
lost. So every rank keeps a connection to the first one, over which it says each second how far
it is; the first rank judges, and sends all of them the reason why the run ends.

Horovod's own stall check (HOROVOD_STALL_CHECK_TIME_SECONDS) runs in the first rank's background
thread and names the ranks that have not submitted a tensor for which others wait. It cannot do
what is done here: that thread itself waits for a process that was stopped or whose machine is
gone, so that it never comes to the check; it does not say which rank died; its one limit, the
same from the first step to the last, knows nothing of compiling and of checkpoints being written;
and what it shuts down is Horovod, not the process that hangs. It stays as it is: a warning.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TextIO

import psutil

from ...foundation.exceptions import MerlinSimError
from ...foundation.ranks import Ranks
from .arrival import EXIT_CODE
from .collectives import broadcast_object, gather_objects
from .interruption import Interrupted

BEAT_SECONDS = 1.0
SILENCE_SECONDS = 20.0
"""A process that says nothing for so long is stopped or its machine is gone."""
CONNECT_SECONDS = 60.0
"""All ranks connect to the first one within this time: they have just met."""
HELLO_SECONDS = 10.0
"""A connection that does not identify itself within this time is closed."""
HELLO_BYTES = 1000
LONG_SECONDS = 600.0
"""Seconds that the first steps (tracing, compiling with XLA) may take, and that may pass between
two signs that a rank which writes files goes on writing."""
LOOPBACK = "127.0.0.1"
INTERFACE = "HOROVOD_GLOO_IFACE"
RENDEZVOUS = "HOROVOD_GLOO_RENDEZVOUS_ADDR"


@dataclass
class Progress:
    """How far one rank has come, as the first rank knows it."""

    steps: int = 0
    patient: bool = False
    written: int = 0
    """Signs of a checkpoint that is being written."""
    last_message: float = field(default_factory=time.monotonic)
    moved: float = field(default_factory=time.monotonic)

    def beat(self, steps: int, patient: bool, written: int = 0) -> None:
        """Note a message."""
        self.last_message = time.monotonic()
        self.patient = patient
        if (steps, written) != (self.steps, self.written):
            self.steps, self.written, self.moved = steps, written, self.last_message


def judge(progress: dict[int, Progress], now: float, stall_timeout: float) -> str | None:
    """Say which rank is lost, or None.

    A rank hangs when it is behind the others and has not moved for ``stall_timeout`` seconds:
    ranks that wait for it are ahead of it by the step that they have begun. One that writes a
    checkpoint moves with what it writes.
    """
    for rank, state in sorted(progress.items()):
        if now - state.last_message > SILENCE_SECONDS:
            return f"rank {rank} has not reported for {now - state.last_message:.0f} seconds"
    furthest = max(state.steps for state in progress.values())
    for rank, state in sorted(progress.items()):
        limit = LONG_SECONDS if state.patient or state.steps <= 2 else stall_timeout
        if state.steps < furthest and now - state.moved > limit:
            what = "written nothing of a checkpoint" if state.patient else "made no step"
            return f"rank {rank} has {what} for {now - state.moved:.0f} seconds"
    return None


def end_process(message: str, exit_code: int) -> None:
    """Say why, if there is anything to say, and leave at once.

    Not by an exception: a thread may be inside Horovod and never come back.
    """
    if message:
        print(f"merlin-sim: {message}", file=sys.stderr)
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(exit_code)


class RankUnreachable(MerlinSimError):
    """Ranks that meet over Horovod cannot connect to one another."""

    exit_code = EXIT_CODE


class Watchdog:
    """Watches the ranks of a run while it is active; with one rank it does nothing.

    Args:
        ranks: the run.
        stall_timeout: seconds without a step after which a rank that is behind is given up.
        end: called once, with the message to print and the exit code.
    """

    def __init__(
        self,
        ranks: Ranks,
        stall_timeout: float = 45.0,
        end: Callable[[str, int], None] = end_process,
    ) -> None:
        self._ranks = ranks
        self._stall_timeout = stall_timeout
        self._end = end
        self._steps = 0
        self._patient = False
        self._written = 0
        self._closing = threading.Event()
        self._ended = threading.Lock()
        self._connections: dict[int, socket.socket] = {}
        self._progress: dict[int, Progress] = {}
        self._to_first: list[socket.socket] = []
        self._all_connected = threading.Condition()
        self._secret = secrets.token_hex(32)

    def alive(self) -> None:
        """Count one step of this rank: before it begins to wait for the others."""
        self._steps += 1

    @contextlib.contextmanager
    def patience(self) -> Iterator[Callable[[], None]]:
        """Let the others wait while this rank writes a checkpoint.

        Yields:
            What the writer calls again and again, as a sign that it goes on writing.
        """
        self._patient = True
        try:
            yield self._goes_on
        finally:
            self._goes_on()  # the next step has as long as any other
            self._patient = False

    def _goes_on(self) -> None:
        self._written += 1

    def __enter__(self) -> Watchdog:
        """Connect all ranks to the first; all ranks must enter."""
        if self._ranks.size == 1:
            return self
        host = first_rank_address(self._ranks)
        if self._ranks.rank == 0:
            with socket.create_server((host, 0), backlog=self._ranks.size) as server:
                address = (host, server.getsockname()[1])
                broadcast_object((address, self._secret), self._ranks)
                try:
                    self._accept(server)
                finally:
                    server.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._thread(self._judge)
        else:
            address, self._secret = broadcast_object(None, self._ranks)
            connection = _connect(address)
            self._to_first.append(connection)
            self._thread(self._report, connection)
            self._thread(self._listen_to_first, connection)
        return self

    def __exit__(self, *raised: object) -> None:
        """Say goodbye, so that leaving is not mistaken for dying, or why this rank fails."""
        message: dict[str, object] = {"bye": True}
        error = raised[1]
        if isinstance(error, Exception) and not isinstance(error, Interrupted):
            code = getattr(error, "exit_code", 1)
            message = {"failed": str(error) or type(error).__name__, "code": code}
        self._closing.set()
        for connection in [*self._connections.values(), *self._to_first]:
            _send(connection, message)

    def _thread(self, work: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()

    def _accept(self, server: socket.socket) -> None:
        """Accept the connections of all other ranks, and no others."""
        self._progress[0] = Progress()
        self._thread(self._answer, server)
        with self._all_connected:
            others = self._ranks.size - 1
            if not self._all_connected.wait_for(
                lambda: len(self._connections) == others, CONNECT_SECONDS
            ):
                missing = set(range(1, self._ranks.size)) - self._connections.keys()
                host, port = server.getsockname()
                raise RankUnreachable(
                    f"{CONNECT_SECONDS:.0f} seconds after all ranks had met, of rank "
                    f"{', '.join(map(str, sorted(missing)))} nothing came to {host}:{port}."
                )

    def _answer(self, server: socket.socket) -> None:
        # Each in a thread of its own: one that is silent delays no other.
        with contextlib.suppress(OSError):  # closed: all ranks are there
            while True:
                connection, _ = server.accept()
                self._thread(self._greet, connection)

    def _greet(self, connection: socket.socket) -> None:
        """Listen to a connection if it shows the secret, else close it."""
        connection.settimeout(HELLO_SECONDS)
        lines = connection.makefile("r", encoding="utf-8")
        rank = self._rank_of(lines)
        with self._all_connected:
            if rank is None or rank in self._connections:
                lines.close()
                connection.close()
                return
            connection.settimeout(None)
            self._connections[rank] = connection
            self._progress[rank] = Progress()
            self._all_connected.notify_all()
        self._listen_to_rank(rank, lines)

    def _rank_of(self, lines: TextIO) -> int | None:
        """Read who connects; None without the secret."""
        try:
            hello = json.loads(lines.readline(HELLO_BYTES))
            known = hmac.compare_digest(str(hello["secret"]).encode(), self._secret.encode())
            rank = hello["rank"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return rank if known and rank in range(1, self._ranks.size) else None

    def _listen_to_rank(self, rank: int, lines: TextIO) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in lines:
                message = json.loads(line)
                if "bye" in message:
                    self._progress.pop(rank, None)
                    return
                if "failed" in message:
                    # What fails on all ranks alike, the first says itself.
                    if not self._closing.wait(2 * BEAT_SECONDS):
                        self._end_all(f"rank {rank}: {message['failed']}", int(message["code"]))
                    return
                signs = int(message["steps"]), bool(message["patient"]), int(message["written"])
                self._progress[rank].beat(*signs)
        # At once: a launcher that saw it die too ends the others within seconds.
        self._end_all(f"rank {rank} died (its connection closed)", EXIT_CODE)

    def _judge(self) -> None:
        while not self._closing.wait(BEAT_SECONDS):
            self._progress[0].beat(self._steps, self._patient, self._written)
            for connection in self._connections.values():
                _send(connection, {})
            reason = judge(dict(self._progress), time.monotonic(), self._stall_timeout)
            if reason:
                self._end_all(reason, EXIT_CODE)
                return

    def _end_all(self, reason: str, code: int) -> None:
        with self._ended:
            if self._closing.is_set():
                return
            self._closing.set()
            for connection in self._connections.values():
                connection.settimeout(1)
                _send(connection, {"end": True, "code": code})
            known = "" if code != EXIT_CODE else ". The run ends; its last checkpoint is whole."
            self._end(reason + known, code)

    def _report(self, connection: socket.socket) -> None:
        _send(connection, {"rank": self._ranks.rank, "secret": self._secret})
        while not self._closing.wait(BEAT_SECONDS):
            _send(
                connection,
                {"steps": self._steps, "patient": self._patient, "written": self._written},
            )

    def _listen_to_first(self, connection: socket.socket) -> None:
        reason = "rank 0 died (its connection closed)"
        try:
            connection.settimeout(SILENCE_SECONDS)
            for line in connection.makefile("r", encoding="utf-8"):
                message = json.loads(line)
                if "bye" in message:
                    return
                if "end" in message or "failed" in message:
                    if not self._closing.wait(BEAT_SECONDS):
                        self._end("", int(message["code"]))
                    return
        except TimeoutError:
            reason = f"rank 0 has not reported for {SILENCE_SECONDS:.0f} seconds"
        except (OSError, ValueError):
            pass
        if not self._closing.is_set():
            self._end(reason, EXIT_CODE)


def _send(connection: socket.socket, message: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def _connect(address: tuple[str, int]) -> socket.socket:
    try:
        connection = socket.create_connection(address, timeout=CONNECT_SECONDS)
    except OSError as error:
        host, port = address
        raise RankUnreachable(
            f"the first rank cannot be reached at {host}:{port}: {error}"
        ) from error
    connection.settimeout(None)
    return connection


def first_rank_address(ranks: Ranks, environ: Mapping[str, str] = os.environ) -> str:
    """Return this machine's address on the network that the ranks use; all ranks must ask.

    Where all ranks are on one machine, that is the loopback; else the interface that Horovod was
    given; else the one from which the launcher, or a rank on another machine, is reached.
    """
    if ranks.local_size == ranks.size:
        return LOOPBACK
    if environ.get(INTERFACE):
        return _interface_address(environ[INTERFACE].split(",")[0])
    if environ.get(RENDEZVOUS):
        return _address_towards(environ[RENDEZVOUS])
    own = socket.gethostname()
    others = [host for host in gather_objects(own, ranks) if host != own]
    return _address_towards(others[0] if others else own)


def _interface_address(name: str) -> str:
    for entry in psutil.net_if_addrs().get(name, []):
        if entry.family == socket.AF_INET:
            return str(entry.address)
    raise MerlinSimError(f"{INTERFACE} names {name}, an interface without an IPv4 address here.")


def _address_towards(host: str) -> str:
    """Ask the system from which of its addresses it reaches ``host``; nothing is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            return str(probe.getsockname()[0])
    except OSError as error:
        raise MerlinSimError(f"there is no way from this machine to {host}: {error}") from error
