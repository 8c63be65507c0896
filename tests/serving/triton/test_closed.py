"""What of a server is open to whom: nothing unencrypted, nothing without a token, no password."""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
from in_process import answer
from redis_server import redis_server
from serving_process import reached, serving
from triton_calls import post

from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.settings import ServerOptions
from merlin_sim.serving.triton.serve import Server

pytest.importorskip("pytriton")
pytest.importorskip("tritonclient.grpc")
import grpc  # noqa: E402
import tritonclient.grpc as triton  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TOKEN = "0123456789abcdef-of-the-clients"
SECRET = "the-password-of-the-store"
ALLOWED = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of this machine's loopback, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    folder = tmp_path_factory.mktemp("tls")
    words = ["-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = [str(folder / name) for name in ("certificate", "key")]
    command = ["openssl", "req", "-x509", *words, "-out", made[0], "-keyout", made[1]]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return [Path(path) for path in made]


@pytest.fixture(scope="module")
def server(servable, certificate, tmp_path_factory):
    """A server that listens everywhere, with a token and certificates."""
    token = tmp_path_factory.mktemp("token") / "token"
    token.touch(0o600)
    token.write_text(f"{TOKEN}\n")
    options = ServerOptions(
        "0.0.0.0", http_port=0, grpc_port=0, metrics_port=0, token_file=token, standby=False,
        tls_certificate=certificate[0], tls_key=certificate[1], start_timeout=400,
    )  # fmt: skip
    with Server(servable, options) as running:
        yield running


def ask(server, certificate, path, headers=ALLOWED, port=None):
    """Ask over TLS; the status."""
    context = ssl.create_default_context(cafile=str(certificate[0]))
    url = f"https://127.0.0.1:{port or server.http_port}{path}"
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def test_without_a_token_nothing_is_answered_but_whether_it_is_ready(server, certificate, events):
    assert ask(server, certificate, "/v2/health/ready", headers={}) == 200
    ports = dict.fromkeys(("/", "/v2", "/v2/models/events"), server.http_port)
    for path, port in {**ports, "/metrics": server.metrics_port}.items():
        assert ask(server, certificate, path, headers={}, port=port) == 401
        assert ask(server, certificate, path, port=port) == 200
    tensor = triton.InferInput("event", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[json.dumps(events[0])]], object))
    address, root = f"localhost:{server.grpc_port}", str(certificate[0])
    with triton.InferenceServerClient(address, ssl=True, root_certificates=root) as client:
        assert client.is_server_ready()
        for headers in ({}, {"authorization": "Bearer wrong"}):
            with pytest.raises(InferenceServerException, match="Bearer TOKEN"):
                client.infer("events", [tensor], headers=headers)
        assert client.infer("events", [tensor], headers=ALLOWED).as_numpy("scores").size == 1
        with pytest.raises(InferenceServerException, match="not allowed"):
            client.unload_model("events", headers=ALLOWED)


def test_nothing_is_answered_without_encryption_nor_over_grpc_to_other_machines(server):
    with pytest.raises((OSError, http.client.HTTPException)):
        urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/v2", timeout=60)
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        with pytest.raises(grpc.FutureTimeoutError):
            grpc.channel_ready_future(channel).result(timeout=1)
    listening = {
        one.laddr.port: one.laddr.ip
        for one in psutil.Process().net_connections("tcp")
        if one.status == psutil.CONN_LISTEN
    }
    assert listening[server.http_port] == "0.0.0.0"
    assert listening[server.grpc_port].removeprefix("::ffff:") == "127.0.0.1"
    tree = psutil.Process(server.replicas.active.process.pid)
    for process in (tree, *tree.children(recursive=True)):  # Triton listens on sockets in a folder
        assert not process.net_connections("tcp")


def test_a_stores_password_is_nowhere_to_be_read(servable, events, tmp_path):
    """Not on command lines, in configurations, messages or answers, and none when it is gone."""
    with redis_server(tmp_path / "r") as (plain, redis):
        import redis as client

        path = plain.removeprefix("unix://").partition("?")[0]
        client.Redis(unix_socket_path=path).config_set("requirepass", SECRET)
        address = f"unix://:{SECRET}@{path}?db=0"
        open_store(address, create=True).close()
        (tmp_path / "address").write_text(address)
        refused = answer("histories", "show", address, "--user", "A")
        assert refused.returncode == 2 and SECRET not in refused.stderr
        assert "@FILE" in refused.stderr
        words = ["--histories", f"@{tmp_path / 'address'}", "--no_standby"]
        with serving(servable.path, *words) as process:
            server = reached(process)
            found = psutil.Process(process.pid)
            tree = [found, *found.children(recursive=True)]
            reported = [line for one in tree for line in one.cmdline()]
            reported += [str(answered(server, events[0])[1])]
            for config in Path("/tmp").glob("merlin-sim-serve-*/*/repository/*/config.pbtxt"):
                with suppress(FileNotFoundError):  # of another server, which ends just now
                    reported.append(config.read_text())
            redis.kill()
            redis.wait(60)
            event = {key: value for key, value in events[0].items() if key != "history"}
            status, found = answered(server, event)
            assert status == 503 and "cannot be read" in str(found)
            reported.append(str(found))
            assert answered(server, events[0])[0] == 200
            sent = {"user": "A", "item": "B", "time": 1}
            status, found = post(server.http_port, "/histories", sent)
            assert status == 503
            reported.append(str(found))
            process.terminate()
            assert process.wait(200) == 0
        reported += process.said
    assert any("unix://" in line for line in process.said)  # the log says which store it is
    assert not [line for line in reported if SECRET in line]


def answered(server, event):
    tensor = {"name": "event", "shape": [1, 1], "datatype": "BYTES", "data": [json.dumps(event)]}
    return post(server.http_port, "/v2/models/events/infer", {"inputs": [tensor]})
