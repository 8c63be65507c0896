"""The repository for the stock Triton, read by its protobuf schema."""

from __future__ import annotations

import pytest

from merlin_sim.schemas.exceptions import MerlinSimError
from merlin_sim.serving.limits import Limits
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.served_columns import ServedColumns
from merlin_sim.serving.triton import repository as module
from merlin_sim.serving.triton.repository import write_stock_repository

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


def test_backends(configs):
    found = {name: config.backend or config.platform for name, config in configs.items()}
    assert found == {
        "ids": "tensorflow",
        "candidates": "tensorflow",
        "workflow": "python",
        "events": "ensemble",
    }
    assert all(name == config.name for name, config in configs.items())


@pytest.mark.parametrize(
    ("name", "signature"), [("ids", "serving_default"), ("candidates", "one_user")]
)
def test_the_tensorflow_backend_finds_the_signature(repository, configs, servable, name, signature):
    import tensorflow as tf

    path = repository / name / "1" / "model.savedmodel"
    loaded = tf.saved_model.load(str(path)).signatures[signature]
    config = configs[name]
    assert config.parameters["TF_SIGNATURE_DEF"].string_value == signature
    _, inputs = loaded.structured_input_signature
    described = {t.name: (t.data_type, list(t.dims)) for t in config.input}
    kinds = {tf.int64: model_config.TYPE_INT64, tf.int32: model_config.TYPE_INT32}
    assert described == {
        n: (kinds[s.dtype], [-1 if d is None else d for d in s.shape.as_list()])
        for n, s in inputs.items()
    }
    assert [(t.name, list(t.dims)) for t in config.output] == [("score", [-1, 1])]


def test_the_ensemble_ties_every_tensor(configs, servable):
    first, second = configs["events"].ensemble_scheduling.step
    assert (first.model_name, second.model_name) == ("workflow", "candidates")
    names = set(ServedColumns.read(servable.schema).inputs)
    assert set(first.output_map) == names == {t.name for t in configs["workflow"].output}
    assert {first.output_map[n] for n in names} == set(second.input_map.values())
    assert dict(second.output_map) == {"score": configs["events"].output[0].name}
    assert list(first.input_map.values()) == [configs["events"].input[0].name]


def test_the_workflow_part_stands_by_itself(repository, configs):
    parameters = configs["workflow"].parameters
    part = repository / "workflow" / "1" / parameters["servable"].string_value
    opened = Servable.open(part, with_model=False)
    assert opened.vocabulary("item_id") is not None
    assert not (part / "model").exists()
    assert parameters["max_candidates"].string_value == "500"
    assert parameters["max_history"].string_value == "600"


def test_it_appears_whole_or_not_at_all(servable, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_manifest", fail)
    with pytest.raises(MerlinSimError, match="No space left"):
        write_stock_repository(servable, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
