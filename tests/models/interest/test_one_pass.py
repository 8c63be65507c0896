"""One pass over a user's short histories: what it remembers, and what it must not know."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from grouped_batches import (
    ENDS,
    LENGTH,
    WEIGHT,
    as_rows,
    grouped_batch,
    losses_and_gradients,
    tensors,
)
from interest_kinds import build_kind

from merlin_sim.models.blocks.recurrence import AuxiliaryNetwork, Evolution
from merlin_sim.models.blocks.search.history_split import HistorySplit
from merlin_sim.models.dien import auxiliary_of_samples

pytestmark = pytest.mark.slow

SHORT = LENGTH - 6


def build(kind, schema, one_pass=True):
    more = {"short_history": "dien"} if kind == "twin" else {}
    return build_kind(kind, schema, one_pass=one_pass, long_seq_length=6, **more)


@pytest.mark.parametrize("kind", ["dien", "sim"])
def test_of_plain_rows_it_is_the_published_way(kind, schema):
    columns, labels = grouped_batch(schema)
    rows, labels = tensors(as_rows(columns)), tf.constant(labels[WEIGHT > 0])
    ours, theirs = (
        losses_and_gradients(build(kind, schema, one_pass), rows, labels)
        for one_pass in (True, False)
    )
    for one, other in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", ["dien", "sim", "twin"])
def test_a_sample_remembers_what_was_before_it_and_knows_nothing_later(kind, schema):
    model, published = build(kind, schema), build(kind, schema, one_pass=False)
    columns, labels = grouped_batch(schema)

    def logits(of, columns):
        return of.forward(tensors(columns)).logits.numpy().reshape(ENDS.shape)

    ours, theirs = logits(model, columns), logits(published, columns)
    first = ENDS == LENGTH  # the span begins with these windows
    np.testing.assert_allclose(ours[first], theirs[first], rtol=1e-5)
    later = (ENDS > LENGTH) & (WEIGHT > 0)
    assert np.abs(ours - theirs)[later].min() > 1e-6
    given = columns, tf.constant(labels), tf.constant(WEIGHT)
    (*_, trained), (*_, needed) = (losses_and_gradients(of, *given) for of in (model, published))
    for gradient, of_published in zip(trained, needed, strict=True):
        assert np.all(np.isfinite(gradient)) and (np.any(gradient) or not np.any(of_published))
    for user, candidate in np.argwhere(WEIGHT > 0):
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
    places = split.places_in_span(ends)
    states = [vectors(2, 1, 4) for _ in range(7)]
    history, negative = vectors(2, 1, 7, 3), vectors(2, 1, 7, 3)
    mask = tf.constant([[[True] * 7], [[False] * 5 + [True] * 2]])
    evolution = Evolution(tf.zeros([2, 4, 4]), states)  # two candidates a window
    found = auxiliary_of_samples(network, evolution, history, negative, mask, False, places)
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
