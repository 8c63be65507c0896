"""`merlin-sim serve --registry`: versions change and it ends while requests come; none is lost."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

import numpy as np
import psutil
import pytest
from asking import Asking, until_more_came
from held_server import Gate, until
from in_process import run
from serving_process import reached, read_until, serving
from triton_calls import infer_events, is_counted, metric

from merlin_sim.serving.encoder import EventEncoder
from merlin_sim.serving.scorer import Scorer
from merlin_sim.serving.servable import Servable

pytest.importorskip("pytriton")
pytest.importorskip("tritonclient.grpc")
import tritonclient.grpc  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def ask(server, protocol, event) -> tuple[int, float]:
    """Ask for one event with one candidate: the version that answered, and its score."""
    if protocol == "http":
        text = json.dumps(event)
        tensor = {"name": "event", "shape": [1, 1], "datatype": "BYTES", "data": [text]}
        body = json.dumps({"inputs": [tensor], "outputs": [{"name": "scores"}]}).encode()
        url = f"http://127.0.0.1:{server.http_port}/v2/models/events/infer"
        with urllib.request.urlopen(url, body, timeout=100) as response:
            found = json.load(response)
        return int(found["model_version"]), found["outputs"][0]["data"][0]
    tensor = tritonclient.grpc.InferInput("event", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[json.dumps(event)]], object))
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        found = client.infer("events", [tensor])
    return int(found.get_response().model_version), float(found.as_numpy("scores")[0, 0])


def is_ready(server):
    """Whether the server takes requests."""
    try:
        url = f"http://127.0.0.1:{server.http_port}/v2/health/ready"
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.status == 200
    except OSError:
        return False


def offline(export, events) -> np.ndarray:
    """Score events without a server."""
    opened = Servable.open(export)
    encoder = EventEncoder(opened)
    encoded = [encoder.encode(encoder.parse(event)) for event in events]
    return np.concatenate(Scorer(opened).score_events(encoded))


def comes(process, word):
    """Wait until a version answers; one that is given up instead fails the test at once."""
    said = read_until(process, "version ")
    while word not in said:
        assert "cannot be served" not in said, said
        said = read_until(process, "version ")


def answered_by(version, both) -> None:
    """Wait until more answers have come, and see that they are of this version."""
    for asking, count in zip(both, until_more_came(both, 10), strict=True):
        # The first may have been asked for before it was said.
        assert set(asking.versions[count + 1 :]) == {version}


def test_promoted_and_ended_while_requests_come(servable, second, events, expected, tmp_path):
    registry = tmp_path / "registry"
    for export in (servable.path, second, second):
        run("registry", "add", registry, export)
    run("registry", "promote", registry, 1)
    (tmp_path / "gate").mkdir()
    gate = Gate(tmp_path / "gate")
    gate.open()
    words = ["--registry", str(registry), "--exit_timeout=60", "--no_standby"]
    with serving(None, *words, command=gate.command) as process:
        server = reached(process)
        of_second = offline(second, events)
        assert np.abs(of_second - expected).max() > 1e-2
        known = {1: expected, 2: of_second}

        def over(protocol):
            def asked(event):
                found = ask(server, protocol, event)
                assert is_ready(server)  # nobody should take it off the list of servers
                return found

            return Asking(asked, events, known)

        with over("http") as over_http, over("grpc") as over_grpc:
            both = (over_http, over_grpc)
            answered_by(1, both)
            run("registry", "promote", registry, 2)
            comes(process, "version 2 answers, in place of 1")
            answered_by(2, both)
            (registry / "versions/000003/model/saved_model.pb").write_bytes(b"damaged")
            (registry / ".new").symlink_to("versions/000003")
            (registry / ".new").rename(registry / "current")
            assert "not as it was exported" in read_until(process, "cannot be served")
            read_until(process, "version 2 goes on answering")
            answered_by(2, both)
        for asking in both:
            assert not asking.wrong
            assert [version for version, _ in groupby(asking.versions)] == [1, 2]
        gate.close()
        sigterm_lets_it_answer(process, server, gate, events[0], of_second[0])


def sigterm_lets_it_answer(process, server, gate, event, expected):
    """What is in flight is answered, nothing new is taken, and nothing is left behind."""
    count, children = 10, psutil.Process(process.pid).children(recursive=True)

    def waiting():
        """Requests that the server has taken and no model works on, once one came."""
        pending = {"name": "nv_inference_pending_request_count", "model": "events"}
        return metric(server, **pending) if is_counted(server, **pending) else 0

    with ThreadPoolExecutor(count) as pool:
        try:
            answers = [pool.submit(infer_events, server, "grpc", [event]) for _ in range(count)]
            until(lambda: gate.held() + waiting() == count)
            process.terminate()
            read_until(process, "stopping")
            until(lambda: not is_ready(server))
            assert not any(answer.done() for answer in answers)
        finally:
            gate.open()
        for answer in answers:
            np.testing.assert_allclose(answer.result(200), [[expected]], atol=1e-5)
    assert process.wait(200) == 0
    _, alive = psutil.wait_procs(children, timeout=100)
    assert not alive
