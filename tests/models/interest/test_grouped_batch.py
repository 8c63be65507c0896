"""Users x candidates, each candidate with its own window: what plain rows of the samples give."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
from grouped_batches import (
    ENDS,
    EXTRA,
    LENGTH,
    WEIGHT,
    as_rows,
    grouped_batch,
    ids,
    losses_and_gradients,
    tensors,
)
from interest_kinds import OPTIONS

from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import OptionError, build_model
from merlin_sim.parallel.steps.loss_scale import LossScale
from merlin_sim.parallel.steps.optimizers import make_optimizer
from merlin_sim.parallel.steps.train_step import TrainStep

every_kind = pytest.mark.parametrize("kind", OPTIONS)
every_model = pytest.mark.parametrize("kind", [kind for kind in OPTIONS if "_" not in kind])


def build(kind, schema):
    tf.keras.utils.set_random_seed(5)
    model = build_model(kind.split("_")[0], schema, embedding_dim=4, **OPTIONS[kind])
    for variable in model.trainable_variables:  # away from zero biases and equal slopes
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
    return model


@pytest.fixture(scope="module")
def schema(make_schema):
    return make_schema()


@pytest.fixture(scope="module")
def built(schema):
    """Makes each model once, for what changes none."""
    return functools.cache(lambda kind: build(kind, schema))


@pytest.mark.slow
@every_kind
def test_logits_losses_and_gradients_are_those_of_the_samples_as_rows(kind, schema, built):
    gradients = check_against_rows(built(kind), schema, losses_and_gradients)
    assert sum(np.any(gradient) for gradient in gradients.values()) >= len(gradients) - 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sim_similarity", "sdim", "stca"])
def test_in_a_graph_too(kind, schema, built):
    compute = tf.function(losses_and_gradients, autograph=False)
    check_against_rows(built(kind), schema, compute)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sim", "sim_heads", "twin", "stca"])
def test_each_window_has_time_intervals_of_its_own(kind, make_schema):
    schema = make_schema(intervals=True)
    model = build(kind, schema)
    gradients = check_against_rows(model, schema, losses_and_gradients)
    of_time = [gradients[name] for name in gradients if name.startswith("table")]
    assert np.any(of_time)
    columns, labels = grouped_batch(schema)
    shared = np.array([[10, 13], [13, 11], [12, 0]])
    columns["intervals"] = columns["intervals"][:, ::2]
    results = [
        losses_and_gradients(
            model,
            {**columns, "history_end": shared.repeat(times, axis=1)}
            | {"intervals": columns["intervals"].repeat(times, axis=1)},
            labels,
            WEIGHT,
        )
        for times in (1, 2)
    ]
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-5, atol=1e-6)


def check_against_rows(model, schema, compute):
    columns, labels = grouped_batch(schema)
    rows, counts = as_rows(columns), WEIGHT > 0
    grouped = compute(model, tensors(columns), tf.constant(labels), tf.constant(WEIGHT))
    plain = losses_and_gradients(model, tensors(rows), tf.constant(labels[counts]))
    # A logit is a sum of numbers as large as the others, so that one near 0 is as exact as those.
    limit = 1e-6 * np.linalg.norm(plain[1])
    np.testing.assert_allclose(grouped[1][counts.reshape(-1)], plain[1], rtol=0, atol=limit)
    np.testing.assert_allclose(grouped[0], plain[0], rtol=1e-5)
    variables = model.trainable_variables
    for variable, ours, theirs in zip(variables, grouped[2], plain[2], strict=True):
        limit = 1e-5 * max(np.linalg.norm(theirs), 1e-2)
        assert np.linalg.norm(ours - theirs) <= limit, variable.name
    return {v.name: gradient.numpy() for v, gradient in zip(variables, grouped[2], strict=True)}


@pytest.mark.slow
@every_model
def test_candidates_that_share_a_window_are_those_that_have_one_each(kind, schema, built):
    model = built(kind)
    columns, labels = grouped_batch(schema)
    shared = np.array([[10, 13], [13, 11], [12, 0]])
    results = [
        losses_and_gradients(model, {**columns, "history_end": ends}, labels, WEIGHT)
        for ends in (shared, shared.repeat(2, axis=1))
    ]
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
    for ours, theirs in zip(results[0][2], results[1][2], strict=True):
        assert np.linalg.norm(ours - theirs) <= 1e-5 * max(np.linalg.norm(theirs), 1e-2)


@pytest.mark.slow
@every_model
def test_what_comes_later_changes_nothing(kind, schema, built):
    """The target item is planted at and after the end of what each candidate sees."""
    model = built(kind)
    columns, _ = grouped_batch(schema)
    logits = model.forward(tensors(columns)).logits.numpy().reshape(ENDS.shape)
    for user, candidate in np.argwhere(WEIGHT > 0):
        planted = {name: column.copy() for name, column in columns.items()}
        for feature in ("item_0", "item_1"):
            target = columns[feature][user, candidate]
            planted[f"{feature}_hist"][user, ENDS[user, candidate] :] = target
            planted[f"{feature}_neg_hist"][user, ENDS[user, candidate] :] = target
        # What stands before the window is not seen either.
        for feature in ("item_0", "item_1"):
            before = max(ENDS[user, candidate] - LENGTH, 0)
            planted[f"{feature}_hist"][user, :before] = columns[feature][user, candidate]
        ours = model.forward(tensors(planted)).logits.numpy().reshape(ENDS.shape)
        np.testing.assert_allclose(
            ours[user, candidate], logits[user, candidate], rtol=1e-6, atol=1e-7
        )
    changed = {**columns, "item_0_hist": ids(schema, "item_0_hist", 3, LENGTH + EXTRA, seed=7)}
    assert np.abs(model.forward(tensors(changed)).logits.numpy().reshape(3, 4) - logits).max() > 0


@pytest.mark.slow
@every_model
def test_what_stands_in_a_filler_changes_neither_losses_nor_gradients(kind, schema, built):
    model = built(kind)
    columns, labels = grouped_batch(schema)
    results = []
    for filling in (1, 4):
        filled = {name: column.copy() for name, column in columns.items()}
        for name in ("item_0", "item_1"):
            filled[name][WEIGHT == 0] = filling
        filled_labels = np.where(WEIGHT > 0, labels, filling == 4).astype(np.float32)
        results.append(losses_and_gradients(model, filled, filled_labels, WEIGHT))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-6)
    for ours, theirs in zip(results[0][2], results[1][2], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_the_training_step_takes_it_and_moves_the_weights_as_rows_do(schema):
    columns, labels = grouped_batch(schema)
    counts, trained = WEIGHT > 0, []
    for is_grouped in (True, False):
        model = build("sim", schema)
        optimizer = make_optimizer("sgd", model.trainable_variables, 0.5)
        step = TrainStep(model, optimizer, LossScale(False), Ranks())
        train = tf.function(step.run, autograph=False)
        never, share = tf.constant(False), tf.constant(1.0)
        if is_grouped:
            given = tensors(columns), tf.constant(labels), never, share, tf.constant(WEIGHT)
        else:
            given = tensors(as_rows(columns)), tf.constant(labels[counts]), never, share
        result = train(*given)
        assert result.logits.shape == (12 if is_grouped else counts.sum(),)
        trained.append((result.losses, [v.numpy() for v in model.trainable_variables]))
    np.testing.assert_allclose(trained[0][0], trained[1][0], rtol=1e-5)
    for ours, theirs in zip(trained[0][1], trained[1][1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_fit_and_evaluate_count_each_sample_once_and_fillers_never(schema):
    columns, labels = grouped_batch(schema)
    counts, reported = WEIGHT > 0, []
    for batch in (
        (tensors(columns), tf.constant(labels), tf.constant(WEIGHT)),
        (tensors(as_rows(columns)), tf.constant(labels[counts])),
    ):
        model = build("dien", schema)
        accuracy = tf.keras.metrics.BinaryAccuracy("accuracy")
        model.compile("sgd", metrics=[accuracy], run_eagerly=True)
        data = tf.data.Dataset.from_tensors(batch)
        fitted = model.fit(data, verbose=0).history
        tested = model.evaluate(data, verbose=0, return_dict=True)
        reported.append((fitted, tested))
        assert model.metrics[0].count == counts.sum()
    for grouped, plain in zip(*reported, strict=True):
        assert set(grouped) == set(plain) and "accuracy" in grouped
        for name, value in grouped.items():
            np.testing.assert_allclose(value, plain[name], rtol=1e-5, err_msg=name)


def test_a_batch_of_fillers_alone_is_no_loss(schema, built):
    model = built("sim")
    columns, labels = grouped_batch(schema)
    losses, _, gradients = losses_and_gradients(model, columns, labels, np.zeros_like(WEIGHT))
    assert float(losses.total_loss) == 0.0
    assert not any(np.any(gradient) for gradient in gradients)


def test_candidates_without_ends_train_as_rows_that_repeat_their_user(schema, built):
    model = built("sim")
    columns, labels = grouped_batch(schema)
    shared = {n: c[:, -LENGTH:] if "hist" in n else c for n, c in columns.items()}
    del shared["history_end"]
    plain = {
        n: c.reshape(-1) if n in ("item_0", "item_1") else c.repeat(4, axis=0)
        for n, c in shared.items()
    }
    ours = losses_and_gradients(model, shared, labels)
    theirs = losses_and_gradients(model, plain, labels.reshape(-1))
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
    for one, other in zip(ours[2], theirs[2], strict=True):
        assert np.linalg.norm(one - other) <= 1e-5 * max(np.linalg.norm(other), 1e-2)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("history_end", (3,)),
        ("history_end", (3, 3)),
        ("item_0", (3,)),
        ("item_1", (3, 5)),
        ("item_1_hist", (3, 12)),
        ("item_0_neg_hist", (3, 4, 13)),
    ],
)
def test_a_batch_of_another_form_is_refused(schema, built, name, shape):
    columns, _ = grouped_batch(schema)
    with pytest.raises(OptionError, match=r"`history_end` should have .*\[users, candidates\]"):
        built("sim").body.features(tensors({**columns, name: np.ones(shape, np.int64)}))


def test_histories_shorter_than_the_schemas_are_refused(schema):
    columns, _ = grouped_batch(schema)
    short = {n: c[:, -9:] if "hist" in n and n != "history_end" else c for n, c in columns.items()}
    with pytest.raises(OptionError, match="at least 10"):
        build("din", schema).body.features(tensors(short))


@pytest.mark.parametrize("shape", [(3, 13), (3, 2, 13), (3, 4, 12)], ids=str)
def test_time_intervals_of_another_form_are_refused(make_schema, shape):
    schema = make_schema(intervals=True)
    columns, _ = grouped_batch(schema)
    columns["intervals"] = np.ones(shape, np.float32)
    with pytest.raises(OptionError, match=r"time intervals of \[users, windows, places\]"):
        build("sim", schema).body.features(tensors(columns))
