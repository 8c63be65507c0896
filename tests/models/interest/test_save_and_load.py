"""Saved models: the signature, and the same predictions in a fresh process."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
from processes import run
from warm import warm

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.models import build_model
from merlin_sim.models.saving import columns_signature

OPTIONS = {"din": {}, "sim": {"long_seq_length": 8, "top_k": 3}}
FRESH = """
import sys
import numpy as np
import tensorflow as tf

found = {}
for path in sys.argv[1:]:
    batch = {name: tf.constant(array) for name, array in np.load(path + ".npz").items()}
    served = {name: column for name, column in batch.items() if "neg" not in name}
    signature = tf.saved_model.load(path).signatures["serving_default"]
    (from_serving,) = signature(**served).values()
    found[path] = batch, served, from_serving

import merlin.models.tf as mm
import merlin_sim.models

for path, (batch, served, from_serving) in found.items():
    model = mm.Model.load(path)
    assert type(model).__module__.startswith("merlin_sim.models."), type(model)
    np.testing.assert_array_equal(model(batch), model(served))
    np.savez(path + ".predictions.npz", serving=from_serving, merlin=model(batch))
"""
SAVED = [("sim", True), ("din", False)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory, make_schema, make_columns, as_batch):
    """Each model saved, its batch beside it, and what one fresh process predicted with all."""
    found = {}
    for model_type, ragged in SAVED:
        schema = make_schema(ragged=ragged)
        batch, _ = as_batch(make_columns(schema, 5, lengths=[0, 1, 4, 9, 10]), 10, ragged=ragged)
        model = build_model(model_type, schema, embedding_dim=4, **OPTIONS[model_type])
        expected = model(batch).numpy()
        path = tmp_path_factory.mktemp(model_type) / "saved"
        model.save(path)
        np.savez(f"{path}.npz", **{name: column.numpy() for name, column in batch.items()})
        found[model_type, ragged] = path, schema, model, expected
    program = tmp_path_factory.mktemp("fresh") / "fresh.py"
    program.write_text(FRESH)
    done = run(warm(str(program), *(str(path) for path, *_ in found.values())))
    assert done.returncode == 0, done.stderr
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", SAVED)
def test_a_fresh_process_predicts_the_same(case, saved):
    path, schema, model, expected = saved[case]
    predictions = np.load(f"{path}.predictions.npz")
    assert set(predictions.files) == {"serving", "merlin"}
    for name in predictions.files:
        np.testing.assert_allclose(predictions[name], expected, rtol=1e-6)
    check_signature(path, schema, model)


def check_signature(path, schema, model):
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    inputs = signature.structured_input_signature[1]
    assert inputs == columns_signature(model.served_schema)
    described = json.loads((path / ".merlin" / "input_schema.json").read_text())
    assert [feature["name"] for feature in described["feature"]] == list(model.channels.served)
    assert {name.partition("__")[0] for name in inputs} == set(model.channels.served)
    for name, spec in inputs.items():
        column = name.partition("__")[0]
        is_offsets = name.endswith("__offsets")
        assert spec.dtype == (tf.int32 if is_offsets else schema[column].dtype.to("tensorflow"))
    (output,) = signature.structured_outputs.values()
    assert output.shape.as_list() == [None, 1] and output.dtype == tf.float32


def test_the_signature_names_each_column_as_the_loader_does(make_schema):
    for ragged, names in (
        (True, {"item_0_hist__values", "item_0_hist__offsets"}),
        (False, {"item_0_hist"}),
    ):
        model = build_model("din", make_schema(items=(20,), ragged=ragged), embedding_dim=4)
        assert set(columns_signature(model.served_schema)) == {"user_0", "item_0"} | names


@pytest.mark.slow
def test_a_trained_model_trains_on_after_loading(tmp_path, make_dataset):
    dataset = make_dataset(ragged=True)
    model = build_model("din", dataset.schema, embedding_dim=4)
    model.compile("adam")
    model.fit(dataset, batch_size=32, verbose=0)
    model.save(tmp_path / "saved")
    loaded = type(model).load(str(tmp_path / "saved"))
    predictions = loaded.predict(dataset, batch_size=32)
    np.testing.assert_allclose(predictions, model.predict(dataset, batch_size=32), rtol=1e-5)
    loaded.compile("adam")
    loaded.fit(dataset, batch_size=32, verbose=0)
    assert np.any(loaded.predict(dataset, batch_size=32) != predictions)


@pytest.mark.slow
def test_traces_can_be_saved_too(tmp_path, make_schema, make_columns, as_batch):
    schema = make_schema()
    batch, _ = as_batch(make_columns(schema, 3), 10, ragged=True)
    model = build_model("din", schema, embedding_dim=4)
    model.save(tmp_path / "saved", save_traces=True)
    loaded = type(model).load(str(tmp_path / "saved"))
    np.testing.assert_allclose(loaded(batch), model(batch), rtol=1e-6)


@pytest.mark.slow
def test_keras_saves_models_while_fitting(tmp_path, make_dataset):
    dataset = make_dataset(ragged=True)
    model = build_model("din", dataset.schema, embedding_dim=4)
    model.compile("adam")
    path = tmp_path / "kept" / "epoch-{epoch}"
    callback = tf.keras.callbacks.ModelCheckpoint(path, "loss")
    data = {"batch_size": 32, "verbose": 0}
    model.fit(dataset, epochs=2, callbacks=[callback], **data)
    names = ["epoch-1", "epoch-2"]
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == names
    loaded = type(model).load(str(tmp_path / "kept" / names[-1]))
    expected = model.predict(dataset, batch_size=32)
    np.testing.assert_allclose(loaded.predict(dataset, batch_size=32), expected, rtol=1e-5)
    model.fit(dataset, epochs=1, callbacks=[callback], **data)  # over what is there


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_other_forms_of_keras_are_refused_before_training(tmp_path, make_dataset, name):
    dataset = make_dataset(ragged=True)
    model = build_model("din", dataset.schema, embedding_dim=4)
    model.compile("adam")
    message = rf"saved as a TensorFlow SavedModel, a directory.*Received: .*{name}"
    with pytest.raises(MerlinSimError, match=message):
        model.save(tmp_path / name)
    callback = tf.keras.callbacks.ModelCheckpoint(tmp_path / name)
    with pytest.raises(MerlinSimError, match=message):
        model.fit(dataset, batch_size=32, callbacks=callback)
    with pytest.raises(MerlinSimError, match="Received: .*model in the format 'h5'"):
        model.save(tmp_path / "model", save_format="h5")
    with pytest.raises(MerlinSimError, match="Weights are saved as a TensorFlow checkpoint"):
        model.save_weights(tmp_path / name)
    callback = tf.keras.callbacks.ModelCheckpoint(tmp_path / name, save_weights_only=True)
    with pytest.raises(MerlinSimError, match="Weights are saved as a TensorFlow checkpoint"):
        model.fit(dataset, batch_size=32, callbacks=[callback])
    assert not list(tmp_path.glob("model*"))


def test_weights_in_one_file_are_read_again(tmp_path, make_schema):
    models = [build_model("din", make_schema(), embedding_dim=4) for _ in range(2)]
    models[0].save_weights(tmp_path / "a.weights.h5")
    models[1].load_weights(str(tmp_path / "a.weights.h5"))
    for saved, loaded in zip(*(model.variables for model in models), strict=True):
        np.testing.assert_array_equal(saved.numpy(), loaded.numpy())
