"""`merlin-sim serve --registry`: versions change while requests come, and none is lost."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager
from itertools import groupby

import numpy as np
import pytest
from held_server import until
from in_process import answer
from serving_process import reached, read_until, serving
from triton_calls import infer_events, metric

from merlin_sim.serving.encoder import EventEncoder
from merlin_sim.serving.request_log import logged_files
from merlin_sim.serving.scorer import Scorer
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.versions import Canary, meets_canary

pytest.importorskip("pytriton")
pytest.importorskip("tritonclient.grpc")
import tritonclient.grpc  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Asking:
    """Sends events one after the other in a thread of its own, and keeps what came."""

    def __init__(self, server, protocol, events, expected) -> None:
        self.server, self.protocol, self.events, self.expected = server, protocol, events, expected
        self.versions = []
        self.wrong = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        place = 0
        while not self._ending.is_set():
            place = (place + 1) % len(self.events)
            try:
                version, score = ask(self.server, self.protocol, self.events[place])
                if self.protocol == "http":  # nobody should take it off the list of servers
                    urllib.request.urlopen(
                        f"http://127.0.0.1:{self.server.http_port}/v2/health/ready", timeout=100
                    ).close()
            except (OSError, InferenceServerException) as error:
                self.wrong.append(repr(error))
                continue
            finally:
                self._ending.wait(0.02)  # so that the server is not all that there is
            if abs(score - self.expected[version][place]) > 1e-5:
                self.wrong.append((version, place, score))
            self.versions.append(version)


def ask(server, protocol, event) -> tuple[int, float]:
    """Ask for one event with one candidate: the version that answered, and its score."""
    if protocol == "http":
        tensor = {
            "name": "event",
            "shape": [1, 1],
            "datatype": "BYTES",
            "data": [json.dumps(event)],
        }
        body = json.dumps({"inputs": [tensor], "outputs": [{"name": "scores"}]}).encode()
        url = f"http://127.0.0.1:{server.http_port}/v2/models/events/infer"
        with urllib.request.urlopen(url, body, timeout=100) as response:
            found = json.load(response)
        return int(found["model_version"]), found["outputs"][0]["data"][0]
    tensor = tritonclient.grpc.InferInput("event", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[json.dumps(event)]], object))
    client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    try:
        found = client.infer("events", [tensor])
    finally:
        client.close()
    return int(found.get_response().model_version), float(found.as_numpy("scores")[0, 0])


def registry(directory, what, *more):
    found = answer("registry", what, directory, *more)
    assert found.returncode == 0, found.stderr
    return found


def test_promoted_and_rolled_back_while_requests_come(servable, second, events, expected, tmp_path):
    with serving_both(servable, second, tmp_path) as (directory, process):
        promote_and_roll_back(directory, process, second, events, expected)


@contextmanager
def serving_both(servable, second, directory):
    """Serve the first of two models of a registry."""
    for export in (servable.path, second):
        registry(directory, "add", export)
    registry(directory, "promote", 1)
    with serving(None, "--registry", str(directory)) as process:
        yield directory, process


def comes(process, word):
    """Wait until a version answers; one that is given up instead fails the test at once."""
    said = read_until(process, "version ")
    while word not in said:
        assert "cannot be served" not in said, said
        said = read_until(process, "version ")


def promote_and_roll_back(directory, process, second, events, expected):
    of_second = offline(second, events)
    assert np.abs(of_second - expected).max() > 1e-2
    known = {1: expected, 2: of_second}
    server = reached(process)
    with (
        Asking(server, "http", events, known) as over_http,
        Asking(server, "grpc", events, known) as over_grpc,
    ):
        both = (over_http, over_grpc)
        answered_by(1, both)
        registry(directory, "promote", 2)
        comes(process, "version 2 answers, in place of 1")
        answered_by(2, both)
        registry(directory, "rollback")
        comes(process, "version 1 answers, in place of 2")
        answered_by(1, both)
        (directory / "versions/000002/model/saved_model.pb").write_bytes(b"damaged")
        (directory / ".new").symlink_to("versions/000002")
        (directory / ".new").rename(directory / "current")
        assert "not as it was exported" in read_until(process, "cannot be served")
        read_until(process, "version 1 goes on answering")
        refuse_loading(server)
        answered_by(1, both)
    for asking in both:
        assert not asking.wrong
        assert [version for version, _ in groupby(asking.versions)] == [1, 2, 1]
    process.terminate()
    assert process.wait(200) == 0


def reported_of(server, version):
    """How many events a version has answered and scored by now."""
    try:
        return (
            metric(server, "merlin_sim_events_total", version=version),
            metric(server, "merlin_sim_events_scores_total", version=version, le="+Inf"),
        )
    except AssertionError:
        return 0, 0


def test_a_share_of_the_users_meets_a_canary(servable, second, events, expected, tmp_path):
    directory = tmp_path / "registry"
    for export in (servable.path, second):
        registry(directory, "add", export)
    registry(directory, "promote", 1)
    known = {1: expected, 2: offline(second, events)}
    options = ["--registry", str(directory), "--canary", "2:0.4"]
    options += ["--log_requests", str(tmp_path / "log"), "--log_share", "1"]
    with serving(None, *options) as process:
        server = reached(process)
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/", timeout=100) as page:
            reported = page.read().decode()
        assert "version 1 (version 2 for 0.4 of the users)" in reported
        assert "Version 1 is current." in reported and "<td>canary</td>" in reported
        met = {1: 0, 2: 0}
        for place, event in enumerate(events):
            version = int(infer_events(server, "grpc", [event], "version")[0, 0])
            assert version == (2 if meets_canary(event["user_id"], Canary(2, 0.4)) else 1)
            met[version] += 1
            scores = infer_events(server, "http", [event])
            np.testing.assert_allclose(scores[0, 0], known[version][place], atol=1e-5)
        assert min(met.values()) > 5
        together = infer_events(server, "grpc", events, "version")[:, 0]
        assert Counter(together.tolist()) == met
        for version, count in met.items():
            scored = (3 * count, 3 * count)
            until(lambda version=version, scored=scored: reported_of(server, version) == scored)
    logged = {file.version: list(file.events()) for file in logged_files(tmp_path / "log")}
    assert {version: len(found) for version, found in logged.items()} == {
        version: 3 * count for version, count in met.items()
    }
    for version, found in logged.items():
        for one in found:
            assert min(abs(one["scores"][0] - np.array(known[version]))) < 1e-5
    nothing = answer("serve", "--registry", directory, "--canary", "3:0.4")
    assert nothing.returncode == 2 and "expected one of its versions (1, 2)" in nothing.stderr
    alone = answer("serve", servable.path, "--canary", "2:0.4")
    assert alone.returncode == 2 and "--canary with --registry only" in alone.stderr


def offline(export, events) -> list[float]:
    """Score events without a server."""
    opened = Servable.open(export)
    encoder, scorer = EventEncoder(opened), Scorer(opened)
    scores = scorer.score_events([encoder.encode(encoder.parse(event)) for event in events])
    return [float(found[0]) for found in scores]


def answered_by(version, both) -> None:
    """Wait until more answers have come, and see that they are of this version."""
    seen = [len(asking.versions) for asking in both]
    until(
        lambda: all(
            len(asking.versions) > count + 10 for asking, count in zip(both, seen, strict=True)
        )
    )
    for asking, count in zip(both, seen, strict=True):
        # The first may have been asked for before it was said.
        assert set(asking.versions[count + 1 :]) == {version}


def refuse_loading(server) -> None:
    """Nobody who reaches the server can give it models, which are code."""
    url = f"http://127.0.0.1:{server.http_port}/v2/repository/models/events/unload"
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(url, b"{}", timeout=100)
    client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    try:
        with pytest.raises(InferenceServerException, match="not allowed"):
            client.unload_model("events")
        with pytest.raises(InferenceServerException, match="not allowed"):
            client.load_model("events", files={"file:1/model.py": b""}, config="{}")
    finally:
        client.close()


def test_nothing_that_is_current_is_reported(servable, tmp_path):
    directory = tmp_path / "registry"
    registry(directory, "add", servable.path)
    found = answer("serve", "--registry", directory)
    assert found.returncode == 2 and "expected a version that was promoted" in found.stderr
    assert answer("serve").returncode == 2
    both = answer("serve", servable.path, "--registry", directory)
    assert both.returncode == 2 and "expected either SERVABLE or --registry" in both.stderr
