"""Users x candidates, each candidate with its own window: what plain rows of the samples give."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from grouped_batches import (
    LENGTH,
    WEIGHT,
    as_rows,
    assert_same_steps,
    grouped_batch,
    losses_and_gradients,
    tensors,
)
from interest_kinds import OPTIONS, build_kind

from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import OptionError
from merlin_sim.parallel.steps.loss_scale import LossScale
from merlin_sim.parallel.steps.optimizers import make_optimizer
from merlin_sim.parallel.steps.train_step import TrainStep

SHARED = np.array([[10, 13], [13, 11], [12, 0]])
"""Ends of windows that two candidates have each."""


def check_against_rows(model, schema, compute):
    """Rows hold their own window alone: of what is later, or a filler, they know nothing."""
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
@pytest.mark.parametrize("kind", OPTIONS)
def test_logits_losses_and_gradients_are_those_of_the_samples_as_rows(kind, schema, built):
    gradients = check_against_rows(built(kind), schema, losses_and_gradients)
    assert sum(np.any(gradient) for gradient in gradients.values()) >= len(gradients) - 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sim_similarity", "stca"])
def test_in_a_graph_too(kind, schema, built):
    compute = tf.function(losses_and_gradients, autograph=False)
    check_against_rows(built(kind), schema, compute)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sim", "sim_heads", "twin", "stca"])
def test_each_window_has_time_intervals_of_its_own(kind, make_schema):
    schema = make_schema(intervals=True)
    model = build_kind(kind, schema)
    gradients = check_against_rows(model, schema, losses_and_gradients)
    assert np.any([np.any(gradients[name]) for name in gradients if name.startswith("table")])
    columns, labels = grouped_batch(schema)
    intervals = columns["intervals"][:, ::2]
    results = []
    for times in (1, 2):
        each = {"history_end": SHARED.repeat(times, axis=1)}
        each["intervals"] = intervals.repeat(times, axis=1)
        results.append(losses_and_gradients(model, {**columns, **each}, labels, WEIGHT))
    assert_same_steps(*results)


@pytest.mark.parametrize("kind", ["din", "dien", "sim", "sdim", "twin", "stca"])
def test_candidates_that_share_a_window_are_those_that_have_one_each(kind, schema, built):
    columns, labels = grouped_batch(schema)
    results = [
        losses_and_gradients(built(kind), {**columns, "history_end": ends}, labels, WEIGHT)
        for ends in (SHARED, SHARED.repeat(2, axis=1))
    ]
    assert_same_steps(*results)


@pytest.mark.slow
def test_the_training_step_takes_it_and_moves_the_weights_as_rows_do(schema):
    columns, labels = grouped_batch(schema)
    counts, trained = WEIGHT > 0, []
    for is_grouped in (True, False):
        model = build_kind("sim", schema)
        optimizer = make_optimizer("sgd", model.trainable_variables, 0.5)
        step = TrainStep(model, optimizer, LossScale(False), Ranks())
        never, share = tf.constant(False), tf.constant(1.0)
        if is_grouped:
            given = tensors(columns), tf.constant(labels), never, share, tf.constant(WEIGHT)
        else:
            given = tensors(as_rows(columns)), tf.constant(labels[counts]), never, share
        result = step.run(*given)
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
        model = build_kind("dien", schema)
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
    columns, labels = grouped_batch(schema)
    none = np.zeros_like(WEIGHT)
    losses, _, gradients = losses_and_gradients(built("sim"), columns, labels, none)
    assert float(losses.total_loss) == 0.0
    assert not any(np.any(gradient) for gradient in gradients)


def test_candidates_without_ends_train_as_rows_that_repeat_their_user(schema, built):
    columns, labels = grouped_batch(schema)
    shared = {n: c[:, -LENGTH:] if "hist" in n else c for n, c in columns.items()}
    del shared["history_end"]
    plain = {
        n: c.reshape(-1) if n in ("item_0", "item_1") else c.repeat(4, axis=0)
        for n, c in shared.items()
    }
    assert_same_steps(
        losses_and_gradients(built("sim"), shared, labels),
        losses_and_gradients(built("sim"), plain, labels.reshape(-1)),
    )


FORM = r"`history_end` should have .*\[users, candidates\]"
OF_TIMES = r"time intervals of \[users, windows, places\]"
REFUSED = [
    ("history_end", (3,), FORM),
    ("history_end", (3, 3), FORM),
    ("item_0", (3,), FORM),
    ("item_1", (3, 5), FORM),
    ("item_1_hist", (3, 12), FORM),
    ("item_0_neg_hist", (3, 4, 13), FORM),
    ("intervals", (3, 13), OF_TIMES),
    ("intervals", (3, 2, 13), OF_TIMES),
    ("intervals", (3, 4, 12), OF_TIMES),
]


@pytest.mark.parametrize(("name", "shape", "message"), REFUSED, ids=str)
def test_a_batch_of_another_form_is_refused(name, shape, message, make_schema):
    schema = make_schema(intervals=message == OF_TIMES)
    columns, _ = grouped_batch(schema)
    kind = np.float32 if name == "intervals" else np.int64
    features = build_kind("sim", schema).body.features
    with pytest.raises(OptionError, match=message):
        features(tensors({**columns, name: np.ones(shape, kind)}))


def test_histories_shorter_than_the_schemas_are_refused(built, schema):
    columns, _ = grouped_batch(schema)
    short = {n: c[:, -9:] if n.endswith("_hist") else c for n, c in columns.items()}
    with pytest.raises(OptionError, match="at least 10"):
        built("sim").body.features(tensors(short))
