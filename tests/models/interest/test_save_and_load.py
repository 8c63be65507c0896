"""Saved models: the signature, the same predictions after loading, and what is refused."""

from __future__ import annotations

import json
import pickle

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
import pickle, sys
import numpy as np
import tensorflow as tf

found = {}
for path in sys.argv[1:]:
    batch = {name: tf.constant(array) for name, array in np.load(path + ".npz").items()}
    served = {name: column for name, column in batch.items() if "neg" not in name}
    signature = tf.saved_model.load(path).signatures["serving_default"]
    (from_serving,) = signature(**served).values()
    described = signature.structured_input_signature[1], signature.structured_outputs
    with open(path + ".signature", "wb") as file:
        pickle.dump(described, file)
    found[path] = batch, served, from_serving

import merlin.models.tf as mm
import merlin_sim.models

for path, (batch, served, from_serving) in found.items():
    model = mm.Model.load(path)
    assert type(model).__module__.startswith("merlin_sim.models."), type(model)
    np.testing.assert_array_equal(model(batch), model(served))
    np.savez(path + ".predictions.npz", serving=from_serving, merlin=model(batch))
"""
RAGGED = {"eta": True, "stca_summary": False}
"""Kinds of models, and whether the histories of their schema are ragged.

ETA has a projection, which no gradient changes.
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory, make_schema, make_columns, as_batch):
    """Each model saved, its batch beside it, and what one fresh process predicted with all."""
    found = {}
    for kind, ragged in RAGGED.items():
        schema = make_schema(ragged=ragged)
        batch, _ = as_batch(make_columns(schema, 5, lengths=[0, 1, 4, 9, 10]), 10, ragged=ragged)
        model = build_model(kind.split("_")[0], schema, embedding_dim=4, **OPTIONS[kind])
        path = tmp_path_factory.mktemp(kind) / "saved"
        model.save(path)
        np.savez(f"{path}.npz", **{name: column.numpy() for name, column in batch.items()})
        found[kind] = path, model, batch
    program = tmp_path_factory.mktemp("fresh") / "fresh.py"
    program.write_text(FRESH)
    done = run(warm(str(program), *(str(path) for path, *_ in found.values())))
    assert done.returncode == 0, done.stderr
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", RAGGED)
def test_a_fresh_process_predicts_the_same_of_columns_that_are_named_as_the_loader_does(
    kind, saved
):
    path, model, batch = saved[kind]
    predictions = np.load(f"{path}.predictions.npz")
    assert set(predictions.files) == {"serving", "merlin"}
    for name in predictions.files:
        np.testing.assert_allclose(predictions[name], model(batch).numpy(), rtol=1e-6)
    if kind == "stca_summary":
        loaded = load_model(path)
        assert loaded.options == model.options and loaded.summary_dim == model.summary_dim
        np.testing.assert_array_equal(loaded.summarize(batch), model.summarize(batch))

    inputs, outputs = pickle.loads(path.with_name("saved.signature").read_bytes())
    assert inputs == columns_signature(model.served_schema)
    described = json.loads((path / ".merlin" / "input_schema.json").read_text())
    assert [feature["name"] for feature in described["feature"]] == list(model.channels.served)
    ragged = {f"item_{i}_hist__{part}" for i in range(2) for part in ("values", "offsets")}
    padded = {"item_0_hist", "item_1_hist"}
    assert set(inputs) == {"user_0", "item_0", "item_1"} | (ragged if RAGGED[kind] else padded)
    assert all(i.dtype == (tf.int32 if "offsets" in n else tf.int64) for n, i in inputs.items())
    (output,) = outputs.values()
    assert output.shape.as_list() == [None, 1] and output.dtype == tf.float32


@pytest.mark.slow
def test_keras_saves_models_while_fitting_which_train_on_after_loading(tmp_path, make_dataset):
    dataset = make_dataset(ragged=True)
    model = build_model("din", dataset.schema, embedding_dim=2, stage_two_mlp_dims=(4,))
    model.compile("adam", run_eagerly=True)
    path = tmp_path / "kept"
    callback = tf.keras.callbacks.ModelCheckpoint(path, "loss")
    data = {"batch_size": 32, "verbose": 0}
    model.fit(dataset, epochs=2, callbacks=[callback], **data)  # the second over the first
    loaded = type(model).load(str(path))
    scores = model.predict(dataset, batch_size=32)
    loaded.compile("adam", run_eagerly=True)
    np.testing.assert_allclose(loaded.predict(dataset, batch_size=32), scores, rtol=1e-5)
    loaded.fit(dataset, **data)
    assert np.any(loaded.predict(dataset, batch_size=32) != scores)


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_other_forms_of_keras_are_refused_before_training(tmp_path, make_dataset, schema, name):
    dataset = make_dataset(ragged=True)
    model = build_model("din", schema, embedding_dim=4)
    model.compile("adam")
    of_model = rf"saved as a TensorFlow SavedModel, a directory.*Received: .*{name}"
    of_weights = "Weights are saved as a TensorFlow checkpoint"
    for message, weights_only, save in (
        (of_model, False, model.save),
        (of_weights, True, model.save_weights),
    ):
        with pytest.raises(MerlinSimError, match=message):
            save(tmp_path / name)
        callback = tf.keras.callbacks.ModelCheckpoint(
            tmp_path / name, save_weights_only=weights_only
        )
        with pytest.raises(MerlinSimError, match=message):
            model.fit(dataset, batch_size=32, callbacks=callback)
    with pytest.raises(MerlinSimError, match="Received: .*model in the format 'h5'"):
        model.save(tmp_path / "model", save_format="h5")
    assert not list(tmp_path.glob("model*"))
    copy = build_model("din", schema, embedding_dim=4)
    model.save_weights(tmp_path / "a.weights.h5")
    copy.load_weights(str(tmp_path / "a.weights.h5"))
    for ours, theirs in zip(copy.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
