"""The repository for the stock Triton, read by its protobuf schema."""

from __future__ import annotations

import json
import os
import socket
import urllib.request
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from held_server import until
from preprocess_runs import all_bytes
from triton_calls import infer

from merlin_sim.serving.limits import Limits
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.signatures import one_user_batch
from merlin_sim.serving.triton.replicas import MOST_STARTS
from merlin_sim.serving.triton.repository import (
    TEXT,
    TritonModel,
    TritonTensor,
    write_stock_repository,
)
from merlin_sim.serving.triton.triton_process import OwnProcess, copy_backends, find_triton

model_config = pytest.importorskip("tritonclient.grpc.model_config_pb2")
text_format = pytest.importorskip("google.protobuf.text_format")
from tritonclient.utils import InferenceServerException  # noqa: E402


@pytest.fixture(scope="module")
def repository(servable, tmp_path_factory):
    output = tmp_path_factory.mktemp("triton") / "repository"
    return write_stock_repository(servable.path, output, limits=Limits(500, 600))


@pytest.fixture(scope="module")
def configs(repository):
    return {
        path.parent.name: text_format.Parse(path.read_text(), model_config.ModelConfig())
        for path in repository.glob("*/config.pbtxt")
    }


@pytest.mark.slow
def test_every_model_is_of_its_backend_and_has_the_tensors_of_its_signature(
    repository, configs, servable
):
    found = {name: config.backend or config.platform for name, config in configs.items()}
    assert found == {
        "ids": "tensorflow", "one_user": "tensorflow", "workflow": "python", "events": "ensemble",
    }  # fmt: skip
    assert all(name == config.name for name, config in configs.items())
    kinds = {tf.int64: model_config.TYPE_INT64, tf.int32: model_config.TYPE_INT32}
    loaded = tf.saved_model.load(str(servable.model))
    for name, signature in (("ids", "serving_default"), ("one_user", "one_user")):
        config = configs[name]
        assert config.parameters["TF_SIGNATURE_DEF"].string_value == signature
        assert all_bytes(repository / name / "1/model.savedmodel") == all_bytes(servable.model)
        _, inputs = loaded.signatures[signature].structured_input_signature
        assert {t.name: (t.data_type, list(t.dims)) for t in config.input} == {
            n: (kinds[s.dtype], [-1 if d is None else d for d in s.shape.as_list()])
            for n, s in inputs.items()
        }
        assert [(t.name, list(t.dims)) for t in config.output] == [("score", [-1, 1])]
    first, second = configs["events"].ensemble_scheduling.step  # which tie every tensor
    assert (first.model_name, second.model_name) == ("workflow", "one_user")
    names = set(servable.columns.inputs)
    assert set(first.output_map) == names == {t.name for t in configs["workflow"].output}
    assert {first.output_map[n] for n in names} == set(second.input_map.values())
    assert dict(second.output_map) == {"score": configs["events"].output[0].name}
    assert list(first.input_map.values()) == [configs["events"].input[0].name]


def test_a_config_is_read_as_it_was_meant():
    dtypes = ["int8", "int16", "int32", "int64", "uint8", "float16", "bool"]
    model = TritonModel(
        "events",
        [TritonTensor("event", TEXT, (1,))],
        [TritonTensor(dtype, dtype, (-1,)) for dtype in dtypes],
        backend="python",
        max_batch_size=16,
        parameters={"servable": 'a "quoted" \\ path\n', "é": "ü"},
    )
    parsed = text_format.Parse(model.to_text(), model_config.ModelConfig())
    assert (parsed.name, parsed.backend, parsed.max_batch_size) == ("events", "python", 16)
    assert parsed.HasField("dynamic_batching")
    assert parsed.input[0].data_type == model_config.TYPE_STRING
    assert list(parsed.output[0].dims) == [-1]
    for output in parsed.output:
        expected = {"float16": "TYPE_FP16"}.get(output.name, f"TYPE_{output.name.upper()}")
        assert model_config.DataType.Name(output.data_type) == expected
    assert parsed.parameters["servable"].string_value == 'a "quoted" \\ path\n'
    assert parsed.parameters["é"].string_value == "ü"


@pytest.fixture(scope="module")
def triton_with_workflow(repository, tmp_path_factory):
    """The bundled server with what it can load of the repository: it has no TensorFlow backend."""
    pytest.importorskip("pytriton")
    files = tmp_path_factory.mktemp("bundled")
    triton = find_triton()
    flags = {
        "model-repository": repository,
        "backend-directory": copy_backends(triton, files / "b"),
    }
    flags["backend-config"] = f"python,shm-region-prefix-name=test-repository-{os.getpid()}"
    flags |= {"model-control-mode": "explicit", "load-model": "workflow", "log-info": "false"}
    flags |= {f"{name}-address": "127.0.0.1" for name in ("http", "grpc")}
    ports = {}
    with ExitStack() as stack:
        for name in ("http", "grpc"):
            # Held while the server listens there too: nobody else can be given it meanwhile.
            held = stack.enter_context(socket.socket())
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            held.bind(("127.0.0.1", 0))
            ports[f"{name}_port"] = held.getsockname()[1]
            flags |= {f"{name}-port": ports[f"{name}_port"], f"reuse-{name}-port": "true"}
        words = [f"--{k}={v}" for k, v in flags.items()]
        command = [str(triton / "bin" / "tritonserver"), *words, "--allow-metrics=false"]
        url = f"http://127.0.0.1:{ports['http_port']}/v2/models/workflow/ready"
        process = stack.enter_context(ended_at_last(command))
        for _ in range(MOST_STARTS):
            until(lambda process=process: process.code() is not None or answers(url))
            if (process.code() or 0) >= 0:
                break
            # A signal ended it: its Python backend does that now and then on a loaded machine.
            process = stack.enter_context(ended_at_last(command))
        assert process.code() is None
        yield SimpleNamespace(**ports)


@contextmanager
def ended_at_last(command):
    """A server that has been started."""
    process = OwnProcess(command, None, 100.0)
    try:
        yield process
    finally:
        process.end()


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.status == 200
    except OSError:
        return False


@pytest.mark.slow
def test_the_workflow_part_stands_by_itself_in_the_bundled_server(
    repository, configs, triton_with_workflow, events, encoder
):
    parameters = configs["workflow"].parameters
    part = repository / "workflow" / "1" / parameters["servable"].string_value
    assert Servable.open(part, with_model=False).vocabulary("item_id") is not None
    assert not (part / "model").exists()
    assert parameters["max_candidates"].string_value == "500"
    assert parameters["max_history"].string_value == "600"
    event = {**events[0], "candidates": [e["candidates"][0] for e in events[:5]]}
    encoded = encoder.encode(encoder.parse(event))
    text = np.array([json.dumps(event)], object)
    for name, expected in one_user_batch(encoded, encoder.columns).items():
        found = infer(triton_with_workflow, "grpc", "workflow", {"event": text}, name)
        assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())
    with pytest.raises(InferenceServerException, match="expected the keys 'history', 'candidates'"):
        bad = np.array(['{"user_id": "u"}'], object)
        infer(triton_with_workflow, "http", "workflow", {"event": bad}, "user_id")
