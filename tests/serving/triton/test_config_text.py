"""What config.pbtxt says, read by Triton's own protobuf schema."""

from __future__ import annotations

import pytest

from merlin_sim.serving.triton.repository import TEXT, TritonModel, TritonTensor

model_config = pytest.importorskip("tritonclient.grpc.model_config_pb2")
text_format = pytest.importorskip("google.protobuf.text_format")


def parse(model):
    return text_format.Parse(model.to_text(), model_config.ModelConfig())


def test_a_model_of_the_python_backend():
    parsed = parse(
        TritonModel(
            "events",
            [TritonTensor("event", TEXT, (1,))],
            [TritonTensor("scores", "float32", (-1,))],
            backend="python",
            max_batch_size=16,
            parameters={"servable": 'a "quoted" \\ path\n', "é": "ü"},
        )
    )
    assert (parsed.name, parsed.backend, parsed.max_batch_size) == ("events", "python", 16)
    assert parsed.HasField("dynamic_batching")
    assert parsed.input[0].data_type == model_config.TYPE_STRING
    assert parsed.output[0].data_type == model_config.TYPE_FP32
    assert list(parsed.output[0].dims) == [-1]
    assert parsed.parameters["servable"].string_value == 'a "quoted" \\ path\n'
    assert parsed.parameters["é"].string_value == "ü"


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "float16", "bool"])
def test_every_dtype_has_triton_s_name(dtype):
    names = {"float16": "TYPE_FP16"}
    parsed = parse(TritonModel("m", [TritonTensor("a", dtype, (1,))], [], backend="python"))
    expected = names.get(dtype, f"TYPE_{dtype.upper()}")
    assert model_config.DataType.Name(parsed.input[0].data_type) == expected
