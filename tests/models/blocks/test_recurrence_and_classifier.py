"""Of the recurrence what no golden case has: one pass over many windows, dropout, first values."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.checks import OptionError
from merlin_sim.models.blocks.mlp import ClassifierMLP
from merlin_sim.models.blocks.recurrence import AuxiliaryNetwork, InterestEvolution


def test_a_windows_states_are_those_of_one_pass(arrays):
    """By hand: a pass over all that is before a window's end, of which it has the last states."""
    layer, short = InterestEvolution(4), 4
    span = arrays.vectors(2, 1, 7, 3)
    mask = tf.constant([[[True] * 7], [[False] * 3 + [True] * 4]])
    span *= tf.cast(mask, tf.float32)[..., tf.newaxis]
    candidates = arrays.vectors(2, 2, 3)
    ends = np.array([[4, 7], [6, 5]])
    in_span = tf.constant(ends[..., None] + np.arange(-short, 0), tf.int32)
    found = layer(candidates, span, mask, in_span)
    np.testing.assert_allclose(layer.item_prelu.alpha, 0.1)
    assert (layer.augru.gates_bias.numpy() == 1).all()
    assert (layer.augru.candidate_bias.numpy() == 0).all()
    assert len(found.states) == 7
    for user, window in np.ndindex(2, 2):
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


def test_dropout_only_in_training_and_for_each_history_by_itself(arrays):
    states, history, _, mask = arrays.next_items(5, 4)
    network = AuxiliaryNetwork(3, (8, 64), dropout_rate=0.5)
    calm = network(states, history, history, mask)
    np.testing.assert_array_equal(calm.click, calm.noclick)
    dropped = network(states, history, history, mask, training=True)
    assert np.abs(dropped.click - dropped.noclick).min() > 0
    assert np.abs(dropped.click - calm.click).min() > 0
    again = AuxiliaryNetwork.from_config(network.get_config())
    assert again.dropout_rate == 0.5 and AuxiliaryNetwork(3).dropout is None


def test_slopes_of_a_classifier_start_at_a_tenth():
    mlp = ClassifierMLP((1,))
    mlp.build(tf.TensorShape([None, 1]))
    mlp.dense[0].set_weights([np.ones([1, 1]), np.zeros(1)])
    mlp.logit.set_weights([np.ones([1, 1]), np.zeros(1)])
    logits = mlp(tf.constant([[2.0], [-2.0]]))
    np.testing.assert_allclose(logits, [[2.0], [-0.2]], rtol=1e-6)


def test_a_classifier_has_whole_logits_and_drops_in_training_alone():
    mlp = ClassifierMLP((64,), dropout_rate=0.5, dtype="mixed_float16")
    inputs = tf.ones([4, 8])
    assert mlp(inputs).dtype == tf.float32
    np.testing.assert_array_equal(mlp(inputs), mlp(inputs, training=False))
    assert not np.allclose(mlp(inputs), mlp(inputs, training=True))


@pytest.mark.parametrize("options", [{"hidden_dims": (4, 0)}, {"dropout_rate": 1.0}])
def test_impossible_options_are_errors(options):
    with pytest.raises(OptionError, match=f"`{next(iter(options))}` should be"):
        ClassifierMLP(**options)
