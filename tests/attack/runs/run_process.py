"""Real training runs in processes of their own, watched, killed, and never left behind."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import psutil

from ..worker import patience

BIN = Path(sys.executable).parent
PR_SET_PDEATHSIG = 1


class RunProcess:
    """One run: of one rank forked from here, where TensorFlow is imported; of two by horovodrun."""

    def __init__(self, arguments: list[str], ranks: int, log: Path) -> None:
        """Start it."""
        self.log = log
        self._popen: subprocess.Popen[bytes] | None = None
        if ranks == 1:
            self.pid = _forked(arguments, log)
        else:
            launch = [str(BIN / "horovodrun"), "-np", str(ranks), "--gloo"]
            words = [*launch, "-H", f"localhost:{ranks}", str(BIN / "merlin-sim"), *arguments]
            path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
            with open(log, "ab") as file:
                self._popen = subprocess.Popen(
                    words,
                    env={**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"},
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                )
            self.pid = self._popen.pid
        self._code: int | None = None

    def __enter__(self) -> RunProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill_all()

    def poll(self) -> int | None:
        """The exit code, where it has ended; of a signal it is negative."""
        if self._code is None and self._popen is not None:
            self._code = self._popen.poll()
        elif self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Wait until it has ended or ``until`` holds; False where neither came in time."""
        began = time.monotonic()
        while self.poll() is None and not until():
            if time.monotonic() - began > patience(seconds):
                return False
            time.sleep(0.002)
        return True

    def family(self) -> list[psutil.Process]:
        """Every process of the run."""
        try:
            parent = psutil.Process(self.pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def ranks(self) -> dict[int, psutil.Process]:
        """The processes that train, by rank."""
        found = {}
        for process in self.family():
            with contextlib.suppress(psutil.Error):
                if any(word.endswith("bin/merlin-sim") for word in process.cmdline()[:2]):
                    found[int(process.environ().get("HOROVOD_RANK", "0"))] = process
        return found

    def kill_all(self) -> None:
        """End every process of the run at once, and wait for them."""
        family = [] if self.poll() is not None else self.family()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.wait(30)
        psutil.wait_procs(family[1:], timeout=30)

    def text(self) -> str:
        """What it printed."""
        return self.log.read_text(errors="replace")


def import_for_forks() -> None:
    """Import what a run imports first, but for Merlin's models, whose import starts TensorFlow.

    What TensorFlow has started does not live on in a forked process: a run would wait for threads
    that are not there.
    """
    import horovod.tensorflow  # noqa: F401
    import nvtabular  # noqa: F401
    import tensorflow  # noqa: F401
    from tensorflow.python.eager import context

    import merlin_sim.checkpoints.checkpoint_store  # noqa: F401

    if context.context()._initialized:
        raise RuntimeError("kills have to come first: TensorFlow has been started")


def _forked(arguments: list[str], log: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with open(log, "ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.argv = ["merlin-sim", *arguments]
        code = _main()
    finally:
        os._exit(code)


def _main() -> int:
    """The command line's own entry, to its exit code."""
    import traceback

    from merlin_sim.scripts.main import main

    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def entries(results: Path, kind: str) -> list[dict[str, object]]:
    """The whole lines of one kind in a run's log."""
    path = results / "log.json"
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    whole = [json.loads(line) for line in lines if line.endswith("\n")]
    return [entry for entry in whole if entry["type"] == kind]
