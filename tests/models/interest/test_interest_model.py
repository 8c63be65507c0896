"""The interest models as Merlin models: whatever form batches have, and what is refused."""

from __future__ import annotations

import json

import merlin.io
import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf
from interest_kinds import OPTIONS, build_kind

from merlin_sim.models import MODELS, DINModel, OptionError, build_model


def inner_arrays(outputs):
    return [part.numpy() for part in tf.nest.flatten(outputs) if part is not None]


def assert_equal(ours, theirs):
    for one, other in zip(inner_arrays(ours), inner_arrays(theirs), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["din_counts", "dien", "sdim", "stca"])
def test_neither_the_form_of_a_batch_nor_its_padding_matters(
    kind, built, schema, make_columns, as_batch
):
    model = built(kind)
    columns = make_columns(schema, 6, lengths=[0, 1, 2, 4, 9, 10])
    (ragged, _), (padded, _) = (as_batch(columns, 10, ragged=form) for form in (True, False))
    outputs = model.forward(padded, with_objective=True)
    assert_equal(model.forward(ragged, with_objective=True), outputs)
    # A second feature's ids where the first one's are 0 are no positions.
    mask = padded["item_0_hist"] > 0
    other = {**padded, "item_1_hist": tf.where(mask, padded["item_1_hist"], 5)}
    assert_equal(model.forward(other, with_objective=True), outputs)
    of_one = as_batch({n: c[:1] for n, c in columns.items()}, 10, ragged=True)[0]
    np.testing.assert_allclose(model(of_one), model(ragged)[:1], rtol=1e-5)
    copy = type(model).from_config(json.loads(json.dumps(model.get_config())))
    copy.set_weights(model.get_weights())
    assert copy.options == model.options
    np.testing.assert_array_equal(copy(ragged), model(ragged))


@pytest.mark.parametrize("kind", ["sdim", "stca"])
def test_empty_and_one_item_histories_train(kind, built, schema, make_columns, as_batch):
    model = built(kind)
    for lengths in ([0, 0], [1]):
        columns = make_columns(schema, len(lengths), lengths=lengths)
        batch, label = as_batch(columns, 10, ragged=True)
        with tf.GradientTape() as tape:
            losses, logits = model.compute_step(batch, label)
        gradients = tape.gradient(losses.total_loss, model.trainable_variables)
        assert logits.shape == (len(lengths), 1)
        for gradient in gradients:
            assert np.isfinite(tf.convert_to_tensor(gradient)).all()


def test_a_short_history_of_one_position_has_no_auxiliary_loss(schema, make_columns, as_batch):
    batch, label = as_batch(make_columns(schema, 4), 10, ragged=True)
    losses, _ = build_kind("sim", schema, long_seq_length=9).compute_step(batch, label)
    assert losses.dien_aux_loss == 0 and np.isfinite(losses.total_loss)


@pytest.mark.slow
def test_inference_computes_nothing_of_the_objective(built, schema, make_columns, as_batch):
    model = built("sim")
    batch, label = as_batch(make_columns(schema, 4), 10, ragged=True)
    served = {n: column for n, column in batch.items() if "neg" not in n}
    np.testing.assert_array_equal(model(served), model(batch))
    serve = tf.function(lambda columns: model(columns), autograph=False)
    graph = serve.get_concrete_function(served).graph
    names = {part for operation in graph.get_operations() for part in operation.name.split("/")}
    assert "stage_two" in names or "classifier" in names
    assert not names & {"aux", "stage_one"}
    with pytest.raises(OptionError, match="missing columns: item_0_neg_hist, item_1_neg_hist"):
        model.compute_step(served, label)


def test_columns_that_are_missing_are_named_and_others_not_asked_for(
    make_schema, make_columns, as_batch
):
    batch, _ = as_batch(make_columns(make_schema(), 2), 10, ragged=True)
    model = build_kind("din", make_schema(intervals=True))  # which it does not read
    assert model(batch).shape == (2, 1)
    del batch["user_0"], batch["item_1_hist__offsets"]
    with pytest.raises(OptionError, match="missing columns: user_0, item_1_hist"):
        model(batch)
    for option in ("pre", "post", "context", "prep_features"):
        with pytest.raises(OptionError, match=f"does not take `{option}`.*mm.Model"):
            DINModel(make_schema(), model.options, **{option: tf.keras.layers.Activation("relu")})


@pytest.mark.slow
def test_extreme_logits_have_finite_losses(schema, make_columns, as_batch):
    batch, label = as_batch(make_columns(schema, 8), 10, ragged=False)
    model = build_kind("sim", schema)
    for weight in model.trainable_variables:
        weight.assign(weight * 300.0)
    with tf.GradientTape() as tape:
        losses, _ = model.compute_step(batch, label)
    assert np.isfinite(losses.total_loss)
    gradients = tape.gradient(losses.total_loss, model.trainable_variables)
    assert not any(np.isnan(tf.convert_to_tensor(gradient)).any() for gradient in gradients)


@pytest.mark.slow
def test_half_precision(schema, make_columns, as_batch):
    kind = "sdim"  # with all that the others have
    tf.keras.utils.set_random_seed(1)
    model = build_model(kind, schema, embedding_dim=4, **OPTIONS[kind])
    columns = make_columns(schema, 8, lengths=[0, 1, 2, 5, 8, 9, 10, 10])
    batch, label = as_batch(columns, 10, ragged=True)
    half = MODELS[kind](schema, model.options, dtype="mixed_float16")
    half.set_weights(model.get_weights())
    losses, logits = model.compute_step(batch, label)
    half_losses, half_logits = half.compute_step(batch, label)
    assert {part.dtype for part in [*half_losses, half_logits, half(batch)]} == {tf.float32}
    np.testing.assert_allclose(half_logits, logits, rtol=5e-3, atol=5e-3)
    np.testing.assert_allclose(half_losses, losses, rtol=5e-3)
    candidates = {
        n: c if "hist" in n or n == "user_0" else tf.stack([c, c[::-1]], axis=1)
        for n, c in batch.items()
    }
    ours, theirs = half.forward(candidates).logits, model.forward(candidates).logits
    np.testing.assert_allclose(ours, theirs, rtol=5e-3, atol=5e-3)
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        half.compile(tf.keras.optimizers.legacy.Adam(), run_eagerly=True)
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    assert np.isfinite(half.train_step((batch, label))["loss_batch"])


@pytest.mark.slow
def test_xla_agrees(make_schema, make_columns, as_batch):
    """SIM has the parts of DIN and DIEN."""
    schema = make_schema(ragged=False)
    batch, label = as_batch(make_columns(schema, 8), 10, ragged=False)
    tf.keras.utils.set_random_seed(1)
    small = {"embedding_dim": 4, "stage_one_mlp_dims": (8,), "stage_two_mlp_dims": (8, 4)}
    model = build_model("sim", schema, long_seq_length=7, top_k=3, aux_mlp_dims=(8, 4), **small)
    variables = model.trainable_variables
    assert model.built and len(variables) == 38  # before any batch
    assert not [w.name for w in model.weights if w.name.startswith(("total", "count"))]

    def step(columns, labels):
        with tf.GradientTape() as tape:
            losses, logits = model.compute_step(columns, labels)
        gradients = tape.gradient(losses.total_loss, variables)
        return losses, logits, [tf.convert_to_tensor(gradient) for gradient in gradients]

    plain = inner_arrays(step(batch, label))
    compiled = inner_arrays(tf.function(step, jit_compile=True, autograph=False)(batch, label))
    for one, other in zip(compiled, plain, strict=True):
        assert np.linalg.norm(one - other) <= 1e-4 * max(np.linalg.norm(other), 1e-3)


@pytest.mark.slow
def test_datasets_of_either_form_and_merlins_loader_train_evaluate_and_predict(make_dataset):
    results = []
    for ragged in (True, False):
        dataset = make_dataset(ragged=ragged)
        tf.keras.utils.set_random_seed(1)
        model = DINModel.from_dataset(dataset, embedding_dim=4, stage_two_mlp_dims=(8, 4))
        before = [weight.numpy() for weight in model.trainable_variables]
        model.compile("adam", metrics=[tf.keras.metrics.AUC(name="auc")], run_eagerly=True)
        fitted = model.fit(dataset, batch_size=32, shuffle=False, verbose=0).history
        after = model.trainable_variables
        changed = [np.any(old != new.numpy()) for old, new in zip(before, after, strict=True)]
        assert all(changed), "every weight learns"
        evaluated = model.evaluate(dataset, batch_size=32, verbose=0, return_dict=True)
        probabilities = model.predict(dataset, batch_size=32)
        assert probabilities.shape == (60, 1) and probabilities.dtype == np.float32
        assert "auc" in fitted and "auc" in evaluated
        results.append((fitted["loss"], evaluated["loss"], probabilities))
    for of_ragged, of_padded in zip(*results, strict=True):
        np.testing.assert_allclose(of_ragged, of_padded, rtol=1e-5, atol=1e-6)

    files = [str(path) for path in dataset.files("train")]
    of_merlin = merlin.io.Dataset(files, engine="parquet", schema=dataset.schema)
    loaders = [mm.Loader(of_merlin, batch_size=32, shuffle=False) for _ in range(2)]
    np.testing.assert_allclose(model.predict(loaders[0]), probabilities, rtol=1e-5)
    stop = tf.keras.callbacks.EarlyStopping("val_loss", patience=5)
    options = {"validation_data": dataset, "batch_size": 20, "callbacks": [stop], "verbose": 0}
    assert {"loss", "val_loss", "val_auc"} <= set(model.fit(loaders[1], **options).history)
    with pytest.raises(OptionError, match="`batch_size` should be set"):
        model.fit(dataset)
