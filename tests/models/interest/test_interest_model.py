"""The interest models as Merlin models."""

from __future__ import annotations

import functools
import warnings

import merlin.io
import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models import MODELS, OptionError, build_model

SMALL = {"embedding_dim": 4, "stage_two_mlp_dims": (8, 4)}
DIEN = {**SMALL, "long_seq_length": 7, "aux_mlp_dims": (8, 4)}
LONG = {**SMALL, "long_seq_length": 7, "heads": 2}
OPTIONS = {
    "din": SMALL,
    "dien": DIEN,
    "sim": {**DIEN, "top_k": 3, "stage_one_mlp_dims": (8,)},
    "eta": {**LONG, "top_k": 3, "hash_bits": 8},
    "sdim": {**LONG, "hashes": 4, "bits_per_hash": 2},
    "twin": {**LONG, "top_k": 3},
    "stca": {**SMALL, "heads": 2, "position_buckets": 4},
}
every_model = pytest.mark.parametrize("model_type", sorted(OPTIONS))


def small_model(model_type, schema, **options):
    tf.keras.utils.set_random_seed(1)
    return build_model(model_type, schema, **{**OPTIONS[model_type], **options})


@pytest.fixture(scope="module")
def built(make_schema):
    """Makes each model once, for what changes none."""
    return functools.cache(lambda model_type: small_model(model_type, make_schema()))


def inner_arrays(outputs):
    return [part.numpy() for part in tf.nest.flatten(outputs) if part is not None]


@pytest.mark.slow
def test_a_dataset_directory_trains_evaluates_and_predicts_ragged_or_padded(make_dataset):
    results = []
    for ragged in (True, False):
        dataset = make_dataset(ragged=ragged)
        tf.keras.utils.set_random_seed(1)
        model = MODELS["din"].from_dataset(dataset, **SMALL)
        before = [weight.numpy() for weight in model.trainable_variables]
        model.compile("adam", metrics=[tf.keras.metrics.AUC(name="auc")])
        history = model.fit(dataset, batch_size=32, shuffle=False, verbose=0)
        after = model.trainable_variables
        assert all(np.any(old != new.numpy()) for old, new in zip(before, after, strict=True)), (
            "every weight learns"
        )
        evaluated = model.evaluate(dataset, batch_size=32, verbose=0, return_dict=True)
        probabilities = model.predict(dataset, batch_size=32)
        assert probabilities.shape == (60, 1) and probabilities.dtype == np.float32
        assert "auc" in history.history and "auc" in evaluated
        results.append((history.history["loss"], evaluated["loss"], probabilities))
    for ragged_result, padded_result in zip(*results, strict=True):
        np.testing.assert_allclose(ragged_result, padded_result, rtol=1e-5, atol=1e-6)


@every_model
def test_ragged_and_padded_batches_give_the_same(
    model_type, built, make_schema, make_columns, as_batch
):
    model = built(model_type)
    columns = make_columns(make_schema(), 6, lengths=[0, 1, 2, 4, 9, 10])
    batches = [as_batch(columns, 10, ragged=ragged) for ragged in (True, False)]
    ragged, padded = (
        inner_arrays(model.forward(batch, with_objective=True)) for batch, _ in batches
    )
    for one, other in zip(ragged, padded, strict=True):
        np.testing.assert_array_equal(one, other)
    columns_of_one = as_batch({n: c[:1] for n, c in columns.items()}, 10, ragged=True)[0]
    np.testing.assert_allclose(model(columns_of_one), model(batches[0][0])[:1], rtol=1e-5)


@pytest.mark.slow
@every_model
def test_empty_and_one_item_histories_train(model_type, built, make_schema, make_columns, as_batch):
    model = built(model_type)
    for lengths in ([0, 0], [1, 0], [1]):
        columns = make_columns(make_schema(), len(lengths), lengths=lengths)
        batch, label = as_batch(columns, 10, ragged=True)
        with tf.GradientTape() as tape:
            losses, logits = model.compute_step(batch, label)
        gradients = tape.gradient(losses.total_loss, model.trainable_variables)
        assert logits.shape == (len(lengths), 1)
        for gradient in gradients:
            assert np.isfinite(tf.convert_to_tensor(gradient)).all()


@pytest.mark.parametrize("model_type", ["dien", "sim"])
def test_a_short_history_of_one_position(model_type, make_schema, make_columns, as_batch):
    schema = make_schema()
    batch, label = as_batch(make_columns(schema, 4), 10, ragged=True)
    model = small_model(model_type, schema, long_seq_length=9)
    losses, _ = model.compute_step(batch, label)
    assert losses.dien_aux_loss == 0 and np.isfinite(losses.total_loss)


@pytest.mark.slow
@pytest.mark.parametrize("top_k", [1, 50])
def test_histories_shorter_than_top_k(top_k, make_schema, make_columns, as_batch):
    schema = make_schema()
    batch, label = as_batch(make_columns(schema, 4), 10, ragged=True)
    losses, _ = small_model("sim", schema, top_k=top_k).compute_step(batch, label)
    assert np.isfinite(losses.total_loss)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["din", "sim"])
def test_a_history_longer_than_the_schema_says_counts_as_its_newest_part(
    model_type, make_schema, make_columns, as_batch
):
    columns = make_columns(make_schema(history_length=14), 3, lengths=[14, 12, 3])
    newest = {n: [row[-10:] for row in c] if isinstance(c, list) else c for n, c in columns.items()}
    model = small_model(model_type, make_schema())
    with pytest.warns(UserWarning, match="the newest 10 are kept"):
        cut = model(as_batch(columns, 14, ragged=True)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # reported once
        model(as_batch(columns, 14, ragged=True)[0])
    np.testing.assert_array_equal(cut, model(as_batch(newest, 10, ragged=True)[0]))


@every_model
def test_what_is_padded_does_not_matter(model_type, built, make_schema, make_columns, as_batch):
    model = built(model_type)
    columns = make_columns(make_schema(), 5, lengths=[0, 1, 3, 7, 10])
    batch, label = as_batch(columns, 10, ragged=False)
    # A second feature's ids where the first one's are 0 are no positions.
    mask = batch["item_0_hist"] > 0
    other = {**batch, "item_1_hist": tf.where(mask, batch["item_1_hist"], 5)}
    ours = inner_arrays(model.forward(batch, with_objective=True))
    theirs = inner_arrays(model.forward(other, with_objective=True))
    for one, another in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, another)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["din", "sim"])
def test_fit_minimises_the_published_objective(model_type, make_schema, make_columns, as_batch):
    schema = make_schema()
    batch, label = as_batch(make_columns(schema, 8), 10, ragged=True)
    weight = tf.constant(np.linspace(0.5, 2, 8), tf.float32)
    by_fit, by_hand = small_model(model_type, schema), small_model(model_type, schema)
    by_fit.compile(tf.keras.optimizers.legacy.SGD(0.5), run_eagerly=True)
    logs = by_fit.train_step((batch, tf.reshape(label, [-1, 1]), weight))
    with tf.GradientTape() as tape:
        losses, _ = by_hand.compute_step(batch, label, weight)
    variables = by_hand.trainable_variables
    gradients = tape.gradient(losses.total_loss, variables)
    tf.keras.optimizers.legacy.SGD(0.5).apply_gradients(zip(gradients, variables, strict=True))
    np.testing.assert_allclose(logs["loss_batch"], losses.total_loss, rtol=1e-5)
    for ours, theirs in zip(by_fit.trainable_variables, variables, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    if model_type == "sim":
        for name in ("classification_loss", "dien_aux_loss"):
            np.testing.assert_allclose(logs[name], getattr(losses, name), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["dien", "sim"])
def test_inference_computes_nothing_of_the_objective(
    model_type, built, make_schema, make_columns, as_batch
):
    model = built(model_type)
    batch, _ = as_batch(make_columns(make_schema(), 4), 10, ragged=True)
    served = {n: column for n, column in batch.items() if "neg" not in n}
    np.testing.assert_array_equal(model(served), model(batch))
    serve = tf.function(lambda columns: model(columns), autograph=False)
    graph = serve.get_concrete_function(served).graph
    names = {part for operation in graph.get_operations() for part in operation.name.split("/")}
    assert "stage_two" in names or "classifier" in names
    assert not names & {"aux", "stage_one"}


@pytest.mark.parametrize("model_type", ["dien", "sim"])
def test_the_objective_needs_the_negative_histories(
    model_type, make_schema, make_columns, as_batch
):
    batch, label = as_batch(make_columns(make_schema(), 4), 10, ragged=True)
    served = {n: column for n, column in batch.items() if "neg" not in n}
    with pytest.raises(OptionError, match="missing columns: item_0_neg_hist, item_1_neg_hist"):
        small_model(model_type, make_schema()).compute_step(served, label)


@pytest.mark.parametrize("model_type", ["din", "dien"])
def test_time_intervals_are_not_asked_for_where_they_are_not_read(
    model_type, make_schema, make_columns, as_batch
):
    batch, _ = as_batch(make_columns(make_schema(), 3), 10, ragged=True)
    model = small_model(model_type, make_schema(intervals=True))
    assert model(batch).shape == (3, 1)


def test_missing_columns_are_named(make_schema, make_columns, as_batch):
    batch, _ = as_batch(make_columns(make_schema(), 2), 10, ragged=True)
    del batch["user_0"], batch["item_1_hist__offsets"]
    with pytest.raises(OptionError, match="missing columns: user_0, item_1_hist"):
        small_model("din", make_schema())(batch)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["sim", "stca"])
def test_extreme_logits_have_finite_losses(model_type, make_schema, make_columns, as_batch):
    schema = make_schema()
    batch, label = as_batch(make_columns(schema, 8), 10, ragged=False)
    model = small_model(model_type, schema)
    for weight in model.trainable_variables:
        weight.assign(weight * 300.0)
    model.compile("sgd", run_eagerly=True)
    assert np.isfinite(model.train_step((batch, label))["loss_batch"])


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["eta", "sdim", "sim", "stca"])
def test_mixed_float16(model_type, built, make_schema, make_columns, as_batch):
    model = built(model_type)
    columns = make_columns(make_schema(), 8, lengths=[0, 1, 2, 5, 8, 9, 10, 10])
    batch, label = as_batch(columns, 10, ragged=True)
    half = MODELS[model_type](make_schema(), model.options, dtype="mixed_float16")
    half.set_weights(model.get_weights())
    losses, logits = model.compute_step(batch, label)
    half_losses, half_logits = half.compute_step(batch, label)
    assert {part.dtype for part in [*half_losses, half_logits, half(batch)]} == {tf.float32}
    np.testing.assert_allclose(half_logits, logits, rtol=5e-3, atol=5e-3)
    np.testing.assert_allclose(half_losses, losses, rtol=5e-3)
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
    model = small_model("sim", schema)
    variables = model.trainable_variables

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
def test_merlins_loader_datasets_callbacks_and_validation(make_dataset):
    dataset = make_dataset(ragged=True)
    files = [str(path) for path in dataset.files("train")]
    of_merlin = merlin.io.Dataset(files, engine="parquet", schema=dataset.schema)
    model = small_model("din", dataset.schema)
    model.compile("adam")
    stop = tf.keras.callbacks.EarlyStopping("val_loss", patience=5)
    loader = mm.Loader(of_merlin, batch_size=20, shuffle=False)
    history = model.fit(loader, validation_data=dataset, batch_size=20, callbacks=[stop], verbose=0)
    assert {"loss", "val_loss", "val_auc"} <= set(history.history)
    np.testing.assert_allclose(
        model.predict(mm.Loader(of_merlin, batch_size=20, shuffle=False)),
        model.predict(dataset, batch_size=7),
        rtol=1e-5,
    )


def test_a_dataset_needs_a_batch_size(make_dataset):
    dataset = make_dataset(ragged=True)
    model = small_model("din", dataset.schema)
    model.compile("adam")
    with pytest.raises(OptionError, match="`batch_size` should be set"):
        model.fit(dataset)


def test_weights_exist_before_any_batch(make_schema):
    model = small_model("sim", make_schema())
    assert model.built and len(model.trainable_variables) == 38
    names = [weight.name for weight in model.weights]
    assert not [name for name in names if name.startswith(("total", "count"))]


@every_model
def test_config_makes_a_copy(model_type, built, make_schema, make_columns, as_batch):
    model = built(model_type)
    batch, _ = as_batch(make_columns(make_schema(), 3), 10, ragged=True)
    copy = type(model).from_config(model.get_config())
    copy.set_weights(model.get_weights())
    assert copy.options == model.options
    np.testing.assert_array_equal(copy(batch), model(batch))
