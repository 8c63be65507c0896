"""What examples/monitoring asks a server for, and a real Prometheus that asks it."""

from __future__ import annotations

import contextlib
import http
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from held_server import until

MONITORING = Path(__file__).parents[3] / "examples/monitoring"
QUERIES = [
    target["expr"].replace("$__rate_interval", "10s")
    for panel in json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    for target in panel["targets"]
]
METRIC = re.compile(r"\b((?:merlin_sim|nv)_\w+)")
ASKED = {name for query in QUERIES for name in METRIC.findall(query)}
"""The metrics that the dashboard shows."""


def reported_metrics(port: int) -> set[str]:
    """The metrics that a server reports."""
    return set(re.findall(r"^(\w+)[{ ]", _read(port, "/metrics"), re.MULTILINE))


@contextlib.contextmanager
def prometheus(metrics_port: int, folder: Path) -> Iterator[Callable[[str], list]]:
    """Start Prometheus on a server's metrics; gives what a query finds, nothing at first."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus (Debian's package of that name)")
    settings = (MONITORING / "prometheus.yml").read_text().replace("5s", "1s")
    (folder / "p.yml").write_text(settings.replace("8002", str(metrics_port)))
    words = [f"--config.file={folder}/p.yml", f"--storage.tsdb.path={folder}/data"]
    words += ["--web.listen-address=127.0.0.1:0", "--log.level=error"]
    with subprocess.Popen([program, *words]) as process:
        try:
            until(lambda: _ports_of(process))
            (port,) = _ports_of(process)
            yield lambda query: _ask(port, query)
        finally:
            process.terminate()


def _ports_of(process: subprocess.Popen) -> list[int]:
    """Where a process listens."""
    found = psutil.Process(process.pid).net_connections("tcp")
    return [one.laddr.port for one in found if one.status == psutil.CONN_LISTEN]


def _ask(port: int, query: str) -> list:
    path = "/api/v1/query?" + urllib.parse.urlencode({"query": query})
    try:
        answer = json.loads(_read(port, path))
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.SERVICE_UNAVAILABLE:  # it reads what it has kept
            return []
        raise AssertionError(f"{query}: {error.read()}") from error
    return [one for one in answer["data"]["result"] if one["value"][1] != "NaN"]


def _read(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=100) as response:
        return response.read().decode()
