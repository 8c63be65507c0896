"""A process that has imported what models need, and forks a worker for each that is asked for.

    python -m merlin_sim.serving.workers.fork_server SOCKET [MODULE ...]

To import TensorFlow takes longer than all else that a model does until it answers, and most of its
memory; a forked worker has it at once, and shares it. Nothing of TensorFlow runs here: what it
starts does not survive a fork. Workers end with the process that asked for them, or with this one.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import socket
import struct
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from ...foundation.process_wide import collect_less_often
from .protocol import WORKER_NAME

GRACE_SECONDS = 10.0
"""How long a worker may take to end once the process that asked for it has."""
EXIT_SECONDS = 60.0
LOOKS_EVERY = 0.2
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_CREDENTIALS = struct.Struct("3i")


class Origin(NamedTuple):
    """Where a process comes from."""

    parent: int
    """Who started it, or has it now."""
    started: int
    """When, in ticks since the machine's start: another process of its number has another."""


class ForkServer:
    """Forks workers, and sees that none is left behind."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(16)
        self._listener.settimeout(LOOKS_EVERY)
        self._asked_by: dict[int, int] = {}
        """Worker -> the process that asked for it, a stub of Triton's."""
        self._origins: dict[int, Origin] = {}
        """Such a process, as long as it lives -> where it comes from."""
        self._orphaned: dict[int, float] = {}
        """Worker -> when that process was gone."""
        self._ending: float | None = None

    def run(self) -> None:
        """Fork workers until it is asked to end and the last of them has."""
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while self._ending is None or (self._asked_by and time.monotonic() < self._ending):
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                pass
            else:
                with connection:
                    self._fork(connection)
            self._look()

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._ending = time.monotonic() + EXIT_SECONDS

    def _fork(self, connection: socket.socket) -> None:
        given = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        peer = _CREDENTIALS.unpack(given)[0]
        parent = os.getpid()
        worker = os.fork()
        if worker:
            self._asked_by[worker] = peer
            if (origin := _origin_of(peer)) is not None:
                self._origins.setdefault(peer, origin)
            return
        code = 1
        try:
            self._listener.close()
            _become_worker(parent)
            from .worker import Worker

            Worker(connection).run()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _look(self) -> None:
        """Reap workers that ended, and end those whose asker has and that do not by themselves."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._asked_by.pop(ended, None)
                self._orphaned.pop(ended, None)
        # A Triton that is killed leaves stubs that wait for it for ever, in C++, where nothing of
        # theirs can see it.
        for peer, origin in [*self._origins.items()]:
            if (found := _origin_of(peer)) != origin:
                del self._origins[peer]
                if found is not None and found.started == origin.started:
                    with suppress(ProcessLookupError):
                        os.kill(peer, signal.SIGKILL)
        now = time.monotonic()
        for worker, peer in self._asked_by.items():
            if not Path(f"/proc/{peer}").exists():
                gone_for = now - self._orphaned.setdefault(worker, now)
                if gone_for > GRACE_SECONDS:
                    os.kill(worker, signal.SIGKILL)


def _origin_of(process: int) -> Origin | None:
    """Return where a process comes from; None of one that has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return Origin(int(fields[1]), int(fields[19]))


def _become_worker(parent: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    library.prctl(_PR_SET_NAME, WORKER_NAME.encode())
    if os.getppid() != parent:  # it ended before that was set
        os._exit(1)


def main() -> None:
    """Import, listen, fork."""
    collect_less_often()
    path, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    ForkServer(Path(path)).run()


if __name__ == "__main__":
    main()
