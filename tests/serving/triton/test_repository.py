"""The repository for the stock Triton, read by its protobuf schema."""

from __future__ import annotations

import json
import runpy
import sys
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.serving.limits import Limits
from merlin_sim.serving.signatures import one_user_batch
from merlin_sim.serving.triton.repository import (
    TEXT,
    TritonModel,
    TritonTensor,
    write_stock_repository,
)

model_config = pytest.importorskip("tritonclient.grpc.model_config_pb2")
text_format = pytest.importorskip("google.protobuf.text_format")


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
    for name, signature in (("ids", "serving_default"), ("one_user", "one_user")):
        config = configs[name]
        assert config.parameters["TF_SIGNATURE_DEF"].string_value == signature
        loaded = tf.saved_model.load(str(repository / name / "1" / "model.savedmodel"))
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


class Error(Exception):
    """A refusal as Triton's Python backend has it."""

    INVALID_ARG = 3


class Given(NamedTuple):
    """A tensor as Triton's Python backend gives it."""

    named: str
    value: np.ndarray

    def name(self):
        return self.named

    def as_numpy(self):
        return self.value


@pytest.fixture
def workflow(repository, configs, monkeypatch):
    """Ask the model of the repository, whose Triton is stood in for."""
    backend = SimpleNamespace(
        Tensor=lambda name, value: (name, value),
        InferenceResponse=lambda outputs, error=None: error or dict(outputs),
        TritonError=Error,
        TRITONSERVER_RESPONSE_COMPLETE_FINAL=1,
    )
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", backend)
    found = runpy.run_path(str(repository / "workflow" / "1" / "model.py"))
    parameters = configs["workflow"].parameters
    config = {name: {"string_value": one.string_value} for name, one in parameters.items()}
    where = {"model_repository": str(repository / "workflow"), "model_version": "1"}
    model = found["TritonPythonModel"]()
    model.initialize({**where, "model_config": json.dumps({"parameters": config})})

    def ask(*texts):
        asked = (Given("event", np.array([text.encode()], object)) for text in texts)
        return model.execute([SimpleNamespace(inputs=lambda one=one: [one]) for one in asked])

    return ask


def test_the_workflow_part_stands_by_itself(repository, configs, workflow, events, encoder):
    parameters = configs["workflow"].parameters
    part = repository / "workflow" / "1" / parameters["servable"].string_value
    assert not (part / "model").exists()
    assert parameters["max_candidates"].string_value == "500"
    assert parameters["max_history"].string_value == "600"
    event = {**events[0], "candidates": [e["candidates"][0] for e in events[:5]]}
    found, refused = workflow(json.dumps(event), '{"user_id": "u"}')
    expected = one_user_batch(encoder.encode(encoder.parse(event)), encoder.columns)
    assert set(found) == set(expected)
    for name, values in expected.items():
        assert (found[name].dtype, found[name].tolist()) == (values.dtype, values.tolist())
    message, kind = refused.args
    assert kind == Error.INVALID_ARG and "expected the keys 'history', 'candidates'" in message
