"""What of a server is open to whom: management to nobody, the rest to whoever has a token."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
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

from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.settings import ServerOptions
from merlin_sim.serving.triton.serve import Server
from merlin_sim.serving.triton.triton_process import GRPC_SOCKET, HTTP, TOKEN_HEADER

pytest.importorskip("pytriton")
pytest.importorskip("tritonclient.grpc")
import grpc  # noqa: E402
import tritonclient.grpc as triton  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TOKEN = "0123456789abcdef-of-the-clients"
SECRET = "the-password-of-the-store"
OVER_HTTP = [
    ("POST", "/v2/repository/index"),
    ("POST", "/v2/repository/models/events/load"),
    ("POST", "/v2/repository/models/events/unload"),
    ("GET", "/v2/models/events/config"),
    ("GET", "/v2/models/events/stats"),
    ("GET", "/v2/models/stats"),
    ("GET", "/v2/systemsharedmemory/status"),
    ("POST", "/v2/systemsharedmemory/region/a/register"),
    ("POST", "/v2/systemsharedmemory/unregister"),
    ("GET", "/v2/cudasharedmemory/status"),
    ("POST", "/v2/cudasharedmemory/region/a/register"),
    ("GET", "/v2/trace/setting"),
    ("POST", "/v2/trace/setting"),
    ("POST", "/v2/models/events/trace/setting"),
    ("GET", "/v2/logging"),
    ("POST", "/v2/logging"),
]
OVER_GRPC = {
    "index": lambda client, **more: client.get_model_repository_index(**more),
    "load": lambda client, **more: client.load_model("events", **more),
    "unload": lambda client, **more: client.unload_model("events", **more),
    "config": lambda client, **more: client.get_model_config("events", **more),
    "stats": lambda client, **more: client.get_inference_statistics(**more),
    "memory": lambda client, **more: client.get_system_shared_memory_status(**more),
    "register": lambda client, **more: client.register_system_shared_memory("a", "/a", 9, **more),
    "cuda": lambda client, **more: client.get_cuda_shared_memory_status(**more),
    "trace": lambda client, **more: client.get_trace_settings(**more),
    "set trace": lambda client, **more: client.update_trace_settings(settings={}, **more),
    "log": lambda client, **more: client.get_log_settings(**more),
    "set log": lambda client, **more: client.update_log_settings({}, **more),
}
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


def ask(server, certificate, path, body=None, headers=ALLOWED, port=None):
    """Ask over TLS; status and answer."""
    context = ssl.create_default_context(cafile=str(certificate[0]))
    url = f"https://127.0.0.1:{port or server.http_port}{path}"
    request = urllib.request.Request(url, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def behind(server, method, path, headers=()):
    """Ask Triton itself, on its socket."""
    connection = http.client.HTTPConnection("triton", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(server.replicas.active.folder / HTTP))
    try:
        connection.request(method, path, b"{}" if method == "POST" else None, dict(headers))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize(("method", "path"), OVER_HTTP)
def test_nobody_manages_it_over_http(server, certificate, method, path):
    body = b"{}" if method == "POST" else None
    status, _ = ask(server, certificate, path, body)
    assert status in (404, 405)
    # Nor is that all that stands before it.
    status, reported = behind(server, method, path)
    assert status == 403 and b"restricted" in reported


def test_nobody_manages_it_over_grpc(server, certificate):
    address = f"unix:{server.replicas.active.folder / GRPC_SOCKET}"
    with (
        grpc_client(server, certificate) as client,
        triton.InferenceServerClient(address) as behind_the_front,
    ):
        assert client.is_server_live(headers=ALLOWED)
        for call in OVER_GRPC.values():
            with pytest.raises(InferenceServerException, match="not allowed"):
                call(client, headers=ALLOWED)
            with pytest.raises(InferenceServerException, match="This protocol is restricted"):
                call(behind_the_front)


def test_the_token_that_manages_triton_is_nowhere_to_be_read(server):
    token = server.replicas.active.token
    assert behind(server, "POST", "/v2/repository/index", {TOKEN_HEADER: token})[0] == 200
    for process in psutil.process_iter():
        try:
            assert token not in " ".join(process.cmdline())
        except psutil.Error:
            continue  # it has ended


def grpc_client(server, certificate):
    return triton.InferenceServerClient(
        f"localhost:{server.grpc_port}", ssl=True, root_certificates=str(certificate[0])
    )


def test_without_a_token_nothing_is_answered_but_whether_it_is_ready(server, certificate, events):
    assert ask(server, certificate, "/v2/health/ready", headers={})[0] == 200
    for path in ("/", "/v2", "/v2/models/events"):
        assert ask(server, certificate, path, headers={})[0] == 401
        assert ask(server, certificate, path)[0] == 200
    metrics = server.metrics_port
    assert ask(server, certificate, "/metrics", headers={}, port=metrics)[0] == 401
    assert ask(server, certificate, "/metrics", port=metrics)[0] == 200
    tensor = triton.InferInput("event", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[json.dumps(events[0])]], object))
    with grpc_client(server, certificate) as client:
        assert client.is_server_ready()
        for headers in ({}, {"authorization": "Bearer wrong"}):
            with pytest.raises(InferenceServerException, match="Bearer TOKEN"):
                client.infer("events", [tensor], headers=headers)
        assert client.infer("events", [tensor], headers=ALLOWED).as_numpy("scores").size == 1


def test_nothing_is_answered_without_encryption(server):
    with pytest.raises((OSError, http.client.HTTPException)):
        urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/v2", timeout=60)
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        with pytest.raises(grpc.FutureTimeoutError):
            grpc.channel_ready_future(channel).result(timeout=1)


def test_grpc_is_for_this_machine_unless_it_is_asked_for(server):
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
            reported = [line for one in tree_of(process) for line in one.cmdline()]
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
            url = f"http://127.0.0.1:{server.http_port}/histories"
            sent = json.dumps({"user": "A", "item": "B", "time": 1}).encode()
            with pytest.raises(urllib.error.HTTPError) as error:
                urllib.request.urlopen(url, sent, timeout=60)
            assert error.value.code == 503
            reported.append(error.value.read().decode())
            process.terminate()
            assert process.wait(200) == 0
        reported += process.said
    assert any("unix://" in line for line in process.said)  # the log says which store it is
    assert not [line for line in reported if SECRET in line]


def tree_of(process):
    found = psutil.Process(process.pid)
    return [found, *found.children(recursive=True)]


def answered(server, event):
    """Ask for an event over HTTP; status, and what was answered."""
    tensor = {"name": "event", "shape": [1, 1], "datatype": "BYTES", "data": [json.dumps(event)]}
    url = f"http://127.0.0.1:{server.http_port}/v2/models/events/infer"
    try:
        body = json.dumps({"inputs": [tensor]}).encode()
        with urllib.request.urlopen(url, body, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
