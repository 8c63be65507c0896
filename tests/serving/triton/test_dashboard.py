"""The dashboard in examples/monitoring asks for what the server tells."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from serving_process import reached, serving
from triton_calls import infer_events

pytest.importorskip("pytriton")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(450)]
MONITORING = Path(__file__).parents[3] / "examples/monitoring"
QUERIES = [
    (panel["title"], target["expr"].replace("$__rate_interval", "10s"))
    for panel in json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    for target in panel["targets"]
]
METRIC = re.compile(r"\b((?:merlin_sim|nv)_\w+)")


def read(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
        return response.read().decode()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def server(servable):
    with serving(servable.path) as process:
        yield reached(process)


def test_all_that_is_asked_for_is_told(server, events):
    infer_events(server, "http", events[:3])
    time.sleep(1.5)  # events are told of once a second
    told = set(re.findall(r"^(\w+)\{", read(server.metrics_port, "/metrics"), re.MULTILINE))
    assert {name for _, query in QUERIES for name in METRIC.findall(query)} <= told


def test_prometheus_answers_every_query(server, events, tmp_path):
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus (Debian's package of that name)")
    settings = (MONITORING / "prometheus.yml").read_text().replace("5s", "1s")
    (tmp_path / "p.yml").write_text(settings.replace("8002", str(server.metrics_port)))
    port = free_port()
    words = [f"--config.file={tmp_path}/p.yml", f"--storage.tsdb.path={tmp_path}/data"]
    words += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    with subprocess.Popen([program, *words]) as prometheus:
        try:
            missing = dict(QUERIES)
            end = time.monotonic() + 120
            while missing and time.monotonic() < end:
                infer_events(server, "http", events[:3])
                missing = {name: query for name, query in missing.items() if not ask(port, query)}
                time.sleep(0.3)
        finally:
            prometheus.terminate()
    assert not missing


def ask(port, query):
    """What a query gives now; nothing where Prometheus is not there yet."""
    path = "/api/v1/query?" + urllib.parse.urlencode({"query": query})
    try:
        answer = json.loads(read(port, path))
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{query}: {error.read()}") from error
    except OSError:
        return []
    return [one for one in answer["data"]["result"] if one["value"][1] != "NaN"]
