"""`merlin-sim` as a person starts it: processes of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import psutil

COMMAND = str(Path(sys.executable).parent / "merlin-sim")
PORTS = ("http_port", "grpc_port", "metrics_port")
READY = re.compile(
    r"ready: .* at https?://[\w.]+:(\d+) and grpc [\w.]+:(\d+); metrics at https?://[\w.]+:(\d+)/"
)


@contextmanager
def serving(servable, *options, command=(COMMAND,), **popen) -> Iterator[subprocess.Popen]:
    """Start `merlin-sim serve` on free ports; whatever happens it is gone when the block ends.

    ``servable`` is a directory, or with ``--registry`` among the options None. What it printed is
    ``process.said``, all of it once the block has ended.
    """
    named = [] if servable is None else [str(servable)]
    free = [f"--{name}=0" for name in PORTS]
    process = subprocess.Popen(
        [*command, "serve", *named, *free, "--start_timeout=400", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **popen,
    )
    process.said = []
    try:
        yield process
    finally:
        started = (
            psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        )
        process.kill()
        try:
            # It ends when the last process that writes there has ended.
            process.said += process.communicate(timeout=200)[0].splitlines()
        except subprocess.TimeoutExpired:
            for one in started:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            raise


def read_until(process, word: str) -> str:
    """Read what a process prints until a line has `word` in it; gives that line."""
    for line in process.stdout:
        process.said.append(line)
        if word in line:
            return line
    raise AssertionError("".join(process.said))


def reached(process) -> SimpleNamespace:
    """Wait until a server says that it is ready; gives its ports.

    Before that it may say that Triton ended before it was ready: it is started again then.
    """
    while not (found := READY.search(read_until(process, "ready:"))):
        pass
    ports = found.groups()
    return SimpleNamespace(**{name: int(port) for name, port in zip(PORTS, ports, strict=True)})
