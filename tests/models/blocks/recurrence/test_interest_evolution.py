from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.recurrence import InterestEvolution


def make_inputs(arrays, batch, candidates, windows, length):
    mask = arrays.masks(batch, windows, length)
    history = arrays.vectors(batch, windows, length, 3) * tf.cast(mask, tf.float32)[..., tf.newaxis]
    return arrays.vectors(batch, candidates, 3), history, mask


@pytest.mark.slow
@pytest.mark.parametrize(("candidates", "windows", "length"), [(1, 1, 1), (2, 2, 4)])
def test_contract(contract_step, arrays, candidates, windows, length):
    contract_step(
        lambda: InterestEvolution(4),
        lambda batch: make_inputs(arrays, batch, candidates, windows, length),
    )


@pytest.mark.parametrize("users", [1, 5])
def test_one_window_for_all_candidates_is_the_same_beside_each(arrays, users):
    targets, history, mask = make_inputs(arrays, users, 3, 1, 4)
    layer = InterestEvolution(4)
    beside = layer(targets, tf.repeat(history, 3, axis=1), tf.repeat(mask, 3, axis=1))
    shared = layer(targets, history, mask)
    np.testing.assert_allclose(shared.final_state, beside.final_state, rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(shared.states, beside.states, strict=True):
        np.testing.assert_allclose(tf.repeat(ours, 3, axis=1), theirs, rtol=1e-5, atol=1e-6)


def test_the_slope_of_the_target_starts_at_a_tenth():
    layer = InterestEvolution(4)
    layer.build(tf.TensorShape([None, 3]))
    np.testing.assert_allclose(layer.item_prelu.alpha, 0.1)


def test_a_windows_states_are_those_of_one_pass(arrays):
    """By hand: a pass over all that is before a window's end, of which it has the last states."""
    layer, short = InterestEvolution(4), 4
    span = arrays.vectors(2, 1, 7, 3)
    mask = tf.constant([[[True] * 7], [[False] * 3 + [True] * 4]])
    span *= tf.cast(mask, tf.float32)[..., tf.newaxis]
    candidates = arrays.vectors(2, 2, 3)
    ends = np.array([[4, 7], [6, 5]])
    places = tf.constant(ends[..., None] + np.arange(-short, 0), tf.int32)
    found = layer(candidates, span, mask, places)
    assert len(found.states) == 7
    for user in range(2):
        for window in range(2):
            part = slice(ends[user, window] - short, ends[user, window])
            until = tf.unstack(span[user, :, : ends[user, window]], axis=1)
            states = layer.gru(until)[-short:]
            item = layer.item_prelu(layer.item_dense(candidates[user, window : window + 1]))
            scores = layer.activation_unit.score_each(item, states, 1)
            seen = mask[user, 0, part]
            weights = tf.nn.softmax(tf.where(seen, scores, -1e9))
            weights = tf.where(seen, weights, 0.0)
            state = layer.augru(states, weights, 1)[0]
            np.testing.assert_allclose(found.final_state[user, window], state, rtol=1e-5, atol=1e-6)
