"""The Triton Inference Server that nvidia-pytriton brings: found, started, watched, ended."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

from ...schemas.exceptions import MerlinSimError

PR_SET_PDEATHSIG = 1


class ServerError(MerlinSimError):
    """The server cannot be found or did not start."""


def find_triton() -> Path:
    """The directory of Triton's binaries in nvidia-pytriton.

    Raises:
        ServerError: Where it is not installed.
    """
    found = importlib.util.find_spec("pytriton")
    if found is None or not found.submodule_search_locations:
        raise ServerError(
            "`merlin-sim serve` needs nvidia-pytriton, which brings a Triton Inference Server: "
            "pip install 'merlin-sim[serve]'."
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
    return {
        "PYTHONWARNINGS": "ignore",  # third parties' at their import, once for each model
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **os.environ,
        "LD_LIBRARY_PATH": ":".join(filter(None, [folder, str(bundled), before])),
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
    }


def device_flags() -> dict[str, str]:
    """What the server is told so that it does not look for a GPU where there is none."""
    if Path("/dev/nvidiactl").exists():
        return {}
    return {"allow-gpu-metrics": "false", "pinned-memory-pool-byte-size": "0"}


def start_process(command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the server so that it does not outlive this process, however that ends."""
    library = ctypes.CDLL(None, use_errno=True)

    def end_with_parent() -> None:
        library.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    # Its own group: Ctrl-C reaches it through us alone, once.
    return subprocess.Popen(
        command, env=environment, preexec_fn=end_with_parent, start_new_session=True
    )
