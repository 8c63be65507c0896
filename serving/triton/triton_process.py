"""Triton, which nvidia-pytriton brings: found, configured, started, watched, ended."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ...foundation.exceptions import MerlinSimError
from ..settings import ServerOptions

PR_SET_PDEATHSIG = 1
NOISE = (
    b"CudaDriverHelper has not been initialized",  # logged as an error on each start without a GPU
    b"NODELAY NOT SUPPORTED",  # of a socket in a folder
    b"Non-graceful termination detected",  # of a model that was asked to end while it loaded
)


class ServerError(MerlinSimError):
    """The server cannot be found or did not start."""


def find_triton() -> Path:
    """The directory of Triton's binaries in nvidia-pytriton."""
    found = importlib.util.find_spec("pytriton")
    if found is None or not found.submodule_search_locations:
        raise ServerError(
            "`merlin-sim serve` needs nvidia-pytriton, which brings a Triton Inference Server: "
            "run `make setup` in your clone of merlin-sim, or `pip install -e '.[serve]'` there."
        )
    return Path(found.submodule_search_locations[0]) / "tritonserver"


def copy_backends(triton: Path, directory: Path) -> Path:
    """Lay out the Python backend with the stub for this Python; returns the backends' directory."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = triton / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.exists():
        raise ServerError(f"nvidia-pytriton has no Python backend for Python {version}.")
    python = directory / "python"
    shutil.copytree(triton / "backends" / "python", python)
    shutil.copy2(stub, python)
    return directory


def server_environment(triton: Path) -> dict[str, str]:
    """The environment in which the server finds its libraries, this Python, and this package."""
    folder = sysconfig.get_config_var("LIBDIR")
    library = sysconfig.get_config_var("INSTSONAME")
    if not folder or not library or ".so" not in library or not (Path(folder) / library).exists():
        raise ServerError(
            "Triton's Python backend needs a Python that was built with its shared library "
            f"(libpython); {sys.executable} has none at {folder}/{library}."
        )
    bundled = triton.parents[1] / "nvidia_pytriton.libs"
    before = os.environ.get("LD_LIBRARY_PATH")
    # Merlin's schema sets it for this process: by protobuf in Python a model loads eight times as
    # long.
    inherited = {
        k: v for k, v in os.environ.items() if k != "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"
    }
    return {
        # Files beside a model's would make it one that has changed.
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONWARNINGS": "ignore",  # third parties' at their import, once for each model
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",  # each model is a process; one would take it all
        **inherited,
        "LD_LIBRARY_PATH": ":".join(filter(None, [folder, str(bundled), before])),
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
    }


def device_flags() -> dict[str, str]:
    """The environment with which the server looks for no GPU where there is none."""
    if Path("/dev/nvidiactl").exists():
        return {}
    return {"allow-gpu-metrics": "false", "pinned-memory-pool-byte-size": "0"}


KILL_AFTER = 10.0
RELAY_SECONDS = 5.0
"""How long is waited, once a process has ended, until all that it wrote is passed on."""
REPOSITORY = "repository"
HTTP, GRPC, METRICS = "http", "grpc", "metrics"
GRPC_SOCKET = f"{GRPC}:1"
"""Triton makes one name of a folder's socket and a port."""
MANAGEMENT = (
    "model-repository,model-config,shared-memory,statistics,trace,logging"  # not: health, metadata
)
"""What of Triton needs the token, which the server alone has; it uses none of it."""
TOKEN_HEADER = "x-merlin-sim-token"


def triton_command(
    options: ServerOptions, folder: Path, backends: Path, name: str, token: str
) -> list[str]:
    """Return the command of a server that finds its models in ``folder`` and answers there.

    It listens on sockets in that folder alone, which only this user can enter. Servers on one
    machine need different names of their shared memory; the token opens what manages it.
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
    """A process in a group of its own, which does not outlive this one, however that ends.

    What it writes to standard error is passed on.

    Args:
        command: What to run.
        lock: A file descriptor that it holds as long as it or a child of it lives; None for none.
        patience: Seconds that it has to end once it is asked to.
        hidden: Lines with one of these are not passed on.
        variables: Of its environment, besides those that every server needs.
    """

    def __init__(
        self,
        command: Sequence[str],
        lock: int | None,
        patience: float,
        hidden: Sequence[bytes] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        parent = os.getpid()

        def end_with_parent() -> None:
            library.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:  # it ended before that was set
                os._exit(1)

        self._process = subprocess.Popen(
            [*command],
            env={**server_environment(find_triton()), **(variables or {})},
            stderr=subprocess.PIPE,
            preexec_fn=end_with_parent,
            pass_fds=() if lock is None else (lock,),
            start_new_session=True,  # its own group: Ctrl-C reaches it through us alone, once
            restore_signals=False,  # it may go on writing when no one reads any more
        )
        self._relay = threading.Thread(
            target=self._pass_on, args=(hidden,), name="relay", daemon=True
        )
        self._relay.start()
        self._patience = patience
        self._is_cleared = False

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
            self._relay.join(RELAY_SECONDS)
        return code

    def kill(self) -> None:
        """End it at once, with all that it started."""
        self._end_group()
        self._process.wait()
        self._relay.join(RELAY_SECONDS)

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
        """Ask it to end: it answers what is in flight first. Returns its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(self._patience)
        self._end_group()
        code = self._process.wait()
        self._relay.join(RELAY_SECONDS)
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

    def _pass_on(self, hidden: Sequence[bytes]) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                if not any(text in line for text in hidden):
                    os.write(2, line)
