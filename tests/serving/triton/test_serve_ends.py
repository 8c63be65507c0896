"""A real Triton that dies, is told to stop, or whose own process is killed."""

from __future__ import annotations

import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
from held_server import Gate, until
from serving_process import reached, read_until, serving
from triton_calls import infer_events, metric

pytest.importorskip("pytriton")
pytest.importorskip("tritonclient.grpc")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_sigterm_lets_it_answer_what_is_in_flight(servable, events, expected, tmp_path):
    gate = Gate(tmp_path)
    count = 10
    with serving(
        servable.path, "--exit_timeout=60", "--no_standby", command=gate.command
    ) as process:
        server = reached(process)
        children = psutil.Process(process.pid).children(recursive=True)
        calls = [lambda: infer_events(server, "grpc", [events[0]])] * count
        with ThreadPoolExecutor(count) as pool:
            try:
                answers = [pool.submit(call) for call in calls]
                until(lambda: gate.held() + waiting(server) == count)
                process.terminate()
                read_until(process, "stopping")
                until(lambda: not is_ready(server))
                assert not any(answer.done() for answer in answers)
            finally:
                gate.open()
            for answer in answers:
                np.testing.assert_allclose(answer.result(200), expected[:1, None], atol=1e-5)
        assert process.wait(200) == 0
        _, alive = psutil.wait_procs(children, timeout=100)
        assert not alive


def waiting(server):
    """Requests that the server has taken and no model works on."""
    return metric(server, "nv_inference_pending_request_count", model="events")


def is_ready(server):
    """Whether the server takes requests."""
    try:
        url = f"http://127.0.0.1:{server.http_port}/v2/health/ready"
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.status == 200
    except OSError:
        return False


def test_killed_itself_it_leaves_no_server_behind(servable):
    with serving(servable.path) as process:
        found = psutil.Process(process.pid)
        # Triton, and a model's own process
        until(lambda: process.poll() is None and len(found.children(recursive=True)) >= 2)
        children = found.children(recursive=True)
        process.kill()
        _, alive = psutil.wait_procs(children, timeout=100)
        assert not alive
