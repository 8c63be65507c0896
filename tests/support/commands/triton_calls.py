"""Calls of a running Triton, over HTTP and gRPC alike."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import numpy as np

KINDS = {"int64": "INT64", "int32": "INT32", "float32": "FP32", "object": "BYTES"}


def client(server, protocol):
    """A client of a running server, and the module it comes from."""
    if protocol == "http":
        import tritonclient.http as module

        return module.InferenceServerClient(f"127.0.0.1:{server.http_port}"), module
    import tritonclient.grpc as module

    return module.InferenceServerClient(f"127.0.0.1:{server.grpc_port}"), module


def infer(server, protocol, model, tensors, output):
    """Send tensors, return one output."""
    connection, module = client(server, protocol)
    try:
        return connection.infer(model, inputs_of(tensors, module)).as_numpy(output)
    finally:
        connection.close()


def inputs_of(tensors, module=None):
    """Tensors as a client sends them; without its module, over gRPC."""
    if module is None:
        import tritonclient.grpc as module
    inputs = []
    for name, value in tensors.items():
        entry = module.InferInput(name, list(value.shape), KINDS[value.dtype.name])
        entry.set_data_from_numpy(value)
        inputs.append(entry)
    return inputs


def infer_events(server, protocol, events, output="scores"):
    """Send raw events in one request; texts go as they are."""
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    array = np.array(texts, object).reshape(-1, 1)
    return infer(server, protocol, "events", {"event": array}, output)


def post(port, path, document):
    """Send a document over HTTP, or bytes as they are; the status and what was answered."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=100) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def metric(server, name, **labels):
    """The value of one of the server's metrics."""
    values = _values(server, name, labels)
    assert values, name
    return sum(values)


def is_counted(server, name, **labels):
    """Whether one of the server's metrics is there yet."""
    return bool(_values(server, name, labels))


def _values(server, name, labels):
    url = f"http://127.0.0.1:{server.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=100) as response:
        lines = response.read().decode().splitlines()
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return [
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith(name + "{") and all(entry in line for entry in wanted)
    ]
