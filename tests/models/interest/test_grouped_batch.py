"""Users x candidates, each with its own window: what plain rows of the samples give."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from grouped_batches import (
    ENDS,
    LENGTH,
    WEIGHT,
    as_rows,
    assert_same_steps,
    grouped_batch,
    losses_and_gradients,
    tensors,
)
from interest_kinds import OPTIONS, build_kind

from merlin_sim.models import OptionError
from merlin_sim.models.blocks.recurrence import AuxiliaryNetwork, Evolution
from merlin_sim.models.blocks.search.history_split import HistorySplit
from merlin_sim.models.dien import auxiliary_of_samples
from merlin_sim.parallel.steps.optimizers import SGD

SHARED = np.array([[10, 13], [13, 11], [12, 0]])
"""Ends of windows that two candidates have each."""
WITH_TIMES = ("sim_heads", "twin", "stca")
"""Kinds whose samples are compared with rows where there are time intervals."""


def check_against_rows(model, schema):
    """Rows hold their own window alone: of what is later, or a filler, they know nothing."""
    columns, labels = grouped_batch(schema)
    rows, counts = as_rows(columns), WEIGHT > 0
    grouped = losses_and_gradients(model, columns, tf.constant(labels), tf.constant(WEIGHT))
    plain = losses_and_gradients(model, rows, tf.constant(labels[counts]))
    # A logit is a sum of numbers as large as the others, so that one near 0 is as exact as those.
    limit = 1e-6 * np.linalg.norm(plain[1])
    np.testing.assert_allclose(grouped[1][counts.reshape(-1)], plain[1], rtol=0, atol=limit)
    np.testing.assert_allclose(grouped[0], plain[0], rtol=1e-5)
    variables = model.trainable_variables
    for variable, ours, theirs in zip(variables, grouped[2], plain[2], strict=True):
        limit = 1e-5 * max(np.linalg.norm(theirs), 1e-2)
        assert np.linalg.norm(ours - theirs) <= limit, variable.name
    return {v.name: gradient.numpy() for v, gradient in zip(variables, grouped[2], strict=True)}


def check_windows(model, columns, labels, name, shared):
    """Candidates that share a window are those that have one each."""
    results = []
    for times in (1, 2):
        each = {"history_end": SHARED.repeat(times, axis=1), name: shared.repeat(times, axis=1)}
        results.append(losses_and_gradients(model, {**columns, **each}, labels, WEIGHT))
    assert_same_steps(*results)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [k for k in OPTIONS if k not in ("din", "sim", *WITH_TIMES)])
def test_logits_losses_and_gradients_are_those_of_the_samples_as_rows(kind, schema, built):
    gradients = check_against_rows(built(kind), schema)
    assert sum(np.any(gradient) for gradient in gradients.values()) >= len(gradients) - 2
    if kind in ("din_counts", "sdim"):
        columns, labels = grouped_batch(schema)
        check_windows(built(kind), columns, labels, "history_end", SHARED)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WITH_TIMES)
def test_each_window_has_time_intervals_of_its_own(kind, make_schema):
    schema = make_schema(intervals=True)
    model = build_kind(kind, schema)
    gradients = check_against_rows(model, schema)
    assert np.any([np.any(gradients[name]) for name in gradients if name.startswith("table")])
    columns, labels = grouped_batch(schema)
    check_windows(model, columns, labels, "intervals", columns["intervals"][:, ::2])


@pytest.mark.slow
def test_fit_and_evaluate_train_as_rows_do_and_count_each_sample_once_and_fillers_never(schema):
    columns, labels = grouped_batch(schema)
    counts, reported, trained = WEIGHT > 0, [], []
    for batch in (
        (tensors(columns), tf.constant(labels), tf.constant(WEIGHT)),
        (tensors(as_rows(columns)), tf.constant(labels[counts])),
    ):
        model = build_kind("dien", schema)
        accuracy = tf.keras.metrics.BinaryAccuracy("accuracy")
        model.compile(SGD(0.5), metrics=[accuracy], run_eagerly=True)
        data = tf.data.Dataset.from_tensors(batch)
        fitted = model.fit(data, verbose=0).history
        assert model.metrics[0].count == counts.sum()
        tested = model.evaluate(data, verbose=0, return_dict=True)
        reported.append((fitted, tested))
        trained.append(model.get_weights())
        assert model.metrics[0].count == counts.sum()
    for grouped, plain in zip(*reported, strict=True):
        assert set(grouped) == set(plain) >= {"accuracy", "dien_aux_loss"}
        for name, value in grouped.items():
            np.testing.assert_allclose(value, plain[name], rtol=1e-5, err_msg=name)
    for ours, theirs in zip(*trained, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_batch_of_fillers_alone_is_no_loss(schema, built):
    columns, labels = grouped_batch(schema)
    none = np.zeros_like(WEIGHT)
    losses, _, gradients = losses_and_gradients(built("sim_hard"), columns, labels, none)
    assert float(losses.total_loss) == 0.0
    assert not any(np.any(gradient) for gradient in gradients)


@pytest.mark.slow
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
OF_TIMES = r"time intervals of \[users, windows, positions\]"
REFUSED = [
    ("history_end", (3,), FORM),
    ("history_end", (3, 3), FORM),
    ("item_1", (3, 5), FORM),
    ("item_1_hist", (3, 12), FORM),
    ("item_0_neg_hist", (3, 4, 13), FORM),
    ("intervals", (3, 13), OF_TIMES),
    ("intervals", (3, 2, 13), OF_TIMES),
    ("intervals", (3, 4, 12), OF_TIMES),
]


@pytest.mark.slow
def test_a_batch_of_another_form_is_refused(make_schema, built, schema):
    with_times = make_schema(intervals=True)
    models = {
        FORM: (built("sim"), schema, np.int64),
        OF_TIMES: (build_kind("sim", with_times), with_times, np.float32),
    }
    for name, shape, message in REFUSED:
        model, of_model, kind = models[message]
        columns, _ = grouped_batch(of_model)
        with pytest.raises(OptionError, match=message):
            model.body.features(tensors({**columns, name: np.ones(shape, kind)}))
    columns, _ = grouped_batch(schema)
    short = {n: c[:, -9:] if n.endswith("_hist") else c for n, c in columns.items()}
    with pytest.raises(OptionError, match="at least 10"):
        built("sim").body.features(tensors(short))


SHORT = LENGTH - 6


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dien", "sim"])
def test_a_sample_remembers_what_was_before_it_and_knows_nothing_later(kind, schema):
    """Of plain rows it is the published way."""
    model, published = (
        build_kind(kind, schema, one_pass=one_pass, long_seq_length=6) for one_pass in (True, False)
    )
    columns, labels = grouped_batch(schema)
    rows, of_rows = as_rows(columns), tf.constant(labels[WEIGHT > 0])
    ours, theirs = (losses_and_gradients(of, rows, of_rows) for of in (model, published))
    for one, other in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True):
        np.testing.assert_array_equal(one, other)

    def logits(of, columns):
        return of.forward(tensors(columns)).logits.numpy().reshape(ENDS.shape)

    ours, theirs = logits(model, columns), logits(published, columns)
    first = ENDS == LENGTH  # the span begins with these windows
    np.testing.assert_allclose(ours[first], theirs[first], rtol=1e-5)
    later = (ENDS > LENGTH) & (WEIGHT > 0)
    assert np.abs(ours - theirs)[later].min() > 1e-6
    if kind == "sim":
        return  # whose first stage this is; the rest is DIEN's
    given = columns, tf.constant(labels), tf.constant(WEIGHT)
    (*_, trained), (*_, needed) = (losses_and_gradients(of, *given) for of in (model, published))
    for gradient, of_published in zip(trained, needed, strict=True):
        assert np.all(np.isfinite(gradient)) and (np.any(gradient) or not np.any(of_published))
    user = 0  # of whom all positions are real
    for candidate in range(WEIGHT.shape[1]):
        planted = {name: column.copy() for name, column in columns.items()}
        for feature in ("item_0", "item_1"):
            for name in (f"{feature}_hist", f"{feature}_neg_hist"):
                planted[name][user, ENDS[user, candidate] :] = columns[feature][user, candidate]
        np.testing.assert_allclose(
            logits(model, planted)[user, candidate], ours[user, candidate], rtol=1e-6, atol=1e-7
        )


def test_auxiliary_logits_of_a_span_are_those_of_its_windows():
    chance = np.random.default_rng(3)

    def vectors(*shape):
        return tf.constant(chance.normal(size=shape), tf.float32)

    network = AuxiliaryNetwork(item_dim=3, hidden_dims=(5,))
    split = HistorySplit(long_length=6, short_length=SHORT)
    ends = tf.constant([[10, 12], [13, 0]])  # the last is a filler's
    indices = split.windows_in_span(ends)
    states = [vectors(2, 1, 4) for _ in range(7)]
    history, negative = vectors(2, 1, 7, 3), vectors(2, 1, 7, 3)
    mask = tf.constant([[[True] * 7], [[False] * 5 + [True] * 2]])
    evolution = Evolution(tf.zeros([2, 4, 4]), states)  # two candidates a window
    found = auxiliary_of_samples(network, evolution, history, negative, mask, False, indices)
    for sample, (user, window) in enumerate([(0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0)]):
        first = int(ends[user, window]) - LENGTH
        part = slice(first, first + SHORT)
        logits = network(
            [state[user] for state in states[part]],
            *(x[user, :, part] for x in (history, negative, mask)),
        )
        for ours, theirs in zip(found, logits, strict=True):
            np.testing.assert_allclose(ours[sample], theirs[0], rtol=1e-5, atol=1e-6)
    assert not np.any(found.mask[6:])
