"""The dashboard in examples/monitoring asks for what the server tells."""

from __future__ import annotations

import http
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import psutil
import pytest
from held_server import until
from serving_process import reached, serving
from triton_calls import infer_events

pytest.importorskip("pytriton")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
MONITORING = Path(__file__).parents[3] / "examples/monitoring"
QUERIES = [
    (panel["title"], target["expr"].replace("$__rate_interval", "10s"))
    for panel in json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    for target in panel["targets"]
]
METRIC = re.compile(r"\b((?:merlin_sim|nv)_\w+)")


def read(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=100) as response:
        return response.read().decode()


def ports_of(process):
    """Where a process listens."""
    found = psutil.Process(process.pid).net_connections("tcp")
    return [one.laddr.port for one in found if one.status == psutil.CONN_LISTEN]


@pytest.fixture(scope="module")
def server(servable):
    with serving(servable.path) as process:
        yield reached(process)


def test_all_that_is_asked_for_is_told(server, events):
    infer_events(server, "http", events[:3])
    asked = {name for _, query in QUERIES for name in METRIC.findall(query)}

    def missing():
        told = re.findall(r"^(\w+)\{", read(server.metrics_port, "/metrics"), re.MULTILINE)
        return asked.difference(told)

    until(lambda: not missing())  # events are told of once a second


def test_prometheus_answers_every_query(server, events, tmp_path):
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus (Debian's package of that name)")
    settings = (MONITORING / "prometheus.yml").read_text().replace("5s", "1s")
    (tmp_path / "p.yml").write_text(settings.replace("8002", str(server.metrics_port)))
    words = [f"--config.file={tmp_path}/p.yml", f"--storage.tsdb.path={tmp_path}/data"]
    words += ["--web.listen-address=127.0.0.1:0", "--log.level=error"]
    with subprocess.Popen([program, *words]) as prometheus:
        try:
            until(lambda: ports_of(prometheus))
            (port,) = ports_of(prometheus)
            missing = set(QUERIES)

            def all_are_answered():
                infer_events(server, "http", events[:3])
                missing.difference_update([one for one in missing if ask(port, one[1])])
                return not missing

            until(all_are_answered, seconds=300, between=0.3)
        finally:
            prometheus.terminate()


def ask(port, query):
    """What a query gives now; nothing where Prometheus is not there yet."""
    path = "/api/v1/query?" + urllib.parse.urlencode({"query": query})
    try:
        answer = json.loads(read(port, path))
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.SERVICE_UNAVAILABLE:  # it reads what it has kept
            return []
        raise AssertionError(f"{query}: {error.read()}") from error
    except OSError:
        return []
    return [one for one in answer["data"]["result"] if one["value"][1] != "NaN"]
