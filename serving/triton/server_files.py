"""Resources of a running server on its machine: a folder, shared memory, ports."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import socket
import stat
import tempfile
from contextlib import ExitStack
from pathlib import Path

from ..settings import ServerOptions
from .triton_process import GRPC_SOCKET, ServerError

PREFIX = "merlin-sim-serve-"
SHARED_MEMORY = Path("/dev/shm")
_LOCK = "lock"
_LONGEST_SOCKET = 107


class ServerFiles:
    """A folder that belongs to this process and those that inherit :attr:`lock`.

    The kernel lets go of the lock when the last of them ends, however it does. So another server
    can see what no server owns any more, also where the two do not see each other's processes.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)  # another server may be looking at it just now
        # A lock file that is empty is one that its owner has not locked yet.
        os.write(self.lock, str(os.getpid()).encode())
        self._count = 0
        # A replica's folder has a number; there may be many in time.
        if len(os.fsencode(self.path / "100000" / GRPC_SOCKET)) > _LONGEST_SOCKET:
            self.remove()
            raise ServerError(
                f"`TMPDIR` should be a shorter path, so that a socket in it has at most "
                f"{_LONGEST_SOCKET} bytes. Received: {self.path.parent}."
            )

    def next_replica(self) -> Path:
        """Make the folder of another Triton."""
        self._count += 1
        folder = self.path / str(self._count)
        folder.mkdir()
        return folder

    def shared_memory_of(self, replica: Path) -> str:
        """Begin the names of a Triton's shared memory: none meets another's there."""
        return f"{self.path.name}-{replica.name}-"

    def clear(self, replica: Path) -> None:
        """Remove the shared memory that a Triton left."""
        _remove_shared_memory(self.shared_memory_of(replica))

    def remove(self) -> None:
        """Remove everything."""
        _remove_shared_memory(self.path.name)
        shutil.rmtree(self.path, ignore_errors=True)
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


def clear_abandoned() -> list[Path]:
    """Remove what killed servers of this user left; the folders that were.

    What is not locked by anybody, has a lock file of ours and belongs to this user is removed,
    nothing else.
    """
    found = sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))
    return [path for path in found if _clear_if_abandoned(path)]


def _clear_if_abandoned(path: Path) -> bool:
    try:
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(lock).st_size:
            return False
        _remove_shared_memory(path.name)
        shutil.rmtree(path, ignore_errors=True)
        return True
    except OSError:
        return False
    finally:
        os.close(lock)


def _remove_shared_memory(prefix: str) -> None:
    for path in SHARED_MEMORY.glob(f"{prefix}*"):
        with contextlib.suppress(FileNotFoundError):  # whose it was may end just now
            if path.lstat().st_uid == os.geteuid():
                path.unlink()


def settle_ports(options: ServerOptions) -> list[int]:
    """The ports, with free ones where 0 was given; one that is taken is refused now."""
    with ExitStack() as stack:
        hosts = {"grpc_port": options.grpc_host}
        held = [
            stack.enter_context(listen(hosts.get(name, options.host), name, port))
            for name, port in options.ports.items()
        ]
        ports = [int(found.getsockname()[1]) for found in held]
    return ports


def listen(host: str, name: str, port: int) -> socket.socket:
    """A socket on a port of this machine."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            message = (
                f"`{name}` = {port}: another process listens on {host}:{port}. Name another port, "
                "or 0 for a free one."
            )
        elif isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            message = (
                f"`{'grpc_host' if name == 'grpc_port' else 'host'}` should be an address of this "
                f"machine. Received: {host}."
            )
        else:
            message = f"`{name}` = {port}: cannot listen on {host}:{port}: {error.strerror}."
        raise ServerError(message) from error
    return found
