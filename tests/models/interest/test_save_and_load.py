"""Saved models: the signature, the same predictions after loading, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
from interest_kinds import OPTIONS
from processes import run
from warm import warm

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.models import build_model
from merlin_sim.models.registry import load_model
from merlin_sim.models.saving import columns_signature

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
SAVED = {"sim": True, "din": False, "eta": True, "sdim": True, "twin": True, "stca_summary": True}
"""Kinds of models, and whether the histories of their schema are ragged."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory, make_schema, make_columns, as_batch):
    """Each model saved, its batch beside it, and what one fresh process predicted with all."""
    found = {}
    for kind, ragged in SAVED.items():
        schema = make_schema(ragged=ragged)
        batch, _ = as_batch(make_columns(schema, 5, lengths=[0, 1, 4, 9, 10]), 10, ragged=ragged)
        model = build_model(kind.split("_")[0], schema, embedding_dim=4, **OPTIONS[kind])
        path = tmp_path_factory.mktemp(kind) / "saved"
        model.save(path)
        np.savez(f"{path}.npz", **{name: column.numpy() for name, column in batch.items()})
        found[kind] = path, schema, model, batch
    program = tmp_path_factory.mktemp("fresh") / "fresh.py"
    program.write_text(FRESH)
    done = run(warm(str(program), *(str(path) for path, *_ in found.values())))
    assert done.returncode == 0, done.stderr
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", SAVED)
def test_a_fresh_process_predicts_the_same(kind, saved):
    path, schema, model, batch = saved[kind]
    predictions = np.load(f"{path}.predictions.npz")
    assert set(predictions.files) == {"serving", "merlin"}
    for name in predictions.files:
        np.testing.assert_allclose(predictions[name], model(batch).numpy(), rtol=1e-6)
    if kind == "stca_summary":
        loaded = load_model(path)
        assert loaded.options == model.options and loaded.summary_dim == model.summary_dim
        np.testing.assert_array_equal(loaded.summarize(batch), model.summarize(batch))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sim", "din"])
def test_the_signature_names_each_column_as_the_loader_does(kind, saved):
    path, schema, model, _ = saved[kind]
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    inputs = signature.structured_input_signature[1]
    assert inputs == columns_signature(model.served_schema)
    described = json.loads((path / ".merlin" / "input_schema.json").read_text())
    assert [feature["name"] for feature in described["feature"]] == list(model.channels.served)
    assert {name.partition("__")[0] for name in inputs} == set(model.channels.served)
    ragged = {f"item_{i}_hist__{part}" for i in range(2) for part in ("values", "offsets")}
    padded = {"item_0_hist", "item_1_hist"}
    assert set(inputs) == {"user_0", "item_0", "item_1"} | (ragged if SAVED[kind] else padded)
    for name, spec in inputs.items():
        column = name.partition("__")[0]
        is_offsets = name.endswith("__offsets")
        assert spec.dtype == (tf.int32 if is_offsets else schema[column].dtype.to("tensorflow"))
    (output,) = signature.structured_outputs.values()
    assert output.shape.as_list() == [None, 1] and output.dtype == tf.float32


@pytest.mark.slow
def test_traces_can_be_saved_too(tmp_path, schema, make_columns, as_batch):
    batch, _ = as_batch(make_columns(schema, 3), 10, ragged=True)
    model = build_model("din", schema, embedding_dim=4)
    model.save(tmp_path / "saved", save_traces=True)
    loaded = type(model).load(str(tmp_path / "saved"))
    np.testing.assert_allclose(loaded(batch), model(batch), rtol=1e-6)


@pytest.mark.slow
def test_keras_saves_models_while_fitting_which_train_on_after_loading(tmp_path, make_dataset):
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
    predictions = loaded.predict(dataset, batch_size=32)
    np.testing.assert_allclose(predictions, expected, rtol=1e-5)
    model.fit(dataset, epochs=1, callbacks=[callback], **data)  # over what is there
    loaded.compile("adam")
    loaded.fit(dataset, **data)
    assert np.any(loaded.predict(dataset, batch_size=32) != predictions)


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


def test_weights_in_one_file_are_read_again(tmp_path, schema):
    models = [build_model("din", schema, embedding_dim=4) for _ in range(2)]
    models[0].save_weights(tmp_path / "a.weights.h5")
    models[1].load_weights(str(tmp_path / "a.weights.h5"))
    for saved, loaded in zip(*(model.variables for model in models), strict=True):
        np.testing.assert_array_equal(saved.numpy(), loaded.numpy())
