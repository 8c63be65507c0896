from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.activation_unit import ActivationUnit
from merlin_sim.models.blocks.checks import OptionError


@pytest.mark.slow
@pytest.mark.parametrize("candidates", [1, 8])
def test_contract(contract_step, arrays, candidates):
    contract_step(
        lambda: ActivationUnit((8, 4)),
        lambda batch: (arrays.vectors(batch, candidates, 4), arrays.vectors(batch, 6, 4)),
    )


def network_on_the_four_inputs(unit, target, history):
    item = tf.repeat(target[:, :, tf.newaxis], history.shape[1], axis=2)
    history = tf.repeat(history[:, tf.newaxis], target.shape[1], axis=1)
    hidden = tf.concat([item, history, item - history, item * history], axis=-1)
    for dense in unit.dense:
        hidden = dense(hidden)
    return hidden[..., 0]


@pytest.mark.parametrize("candidates", [1, 4, 6, 9])  # more and fewer than positions
def test_it_is_the_network_on_the_four_inputs_concatenated(arrays, candidates):
    target, history = arrays.vectors(5, candidates, 4), arrays.vectors(5, 6, 4)
    unit = ActivationUnit((8, 4))
    scores = unit(target, history)
    expected = network_on_the_four_inputs(unit, target, history)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)
    unknown = tf.TensorSpec([None, None, 4]), tf.TensorSpec([None, 6, 4])
    in_graph = tf.function(unit.call, input_signature=unknown, autograph=False)(target, history)
    np.testing.assert_allclose(in_graph, expected, rtol=1e-5, atol=1e-6)


def test_its_gradients_are_those_of_the_network(arrays):
    target, history = arrays.vectors(5, 4, 4), arrays.vectors(5, 6, 4)
    unit = ActivationUnit((8, 4))
    gradients = []
    for score in (unit, lambda *given: network_on_the_four_inputs(unit, *given)):
        with tf.GradientTape() as tape:
            tape.watch([target, history])
            loss = tf.reduce_sum(score(target, history) ** 2)
        gradients.append(tape.gradient(loss, [target, history, *unit.trainable_variables]))
    for ours, theirs in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_positions_one_by_one_have_the_same_scores(arrays):
    target, history = arrays.vectors(5, 4), arrays.vectors(5, 6, 4)
    unit = ActivationUnit((8, 4))
    expected = unit(target[:, tf.newaxis], history)[:, 0]
    one_by_one = unit.score_each(target, tf.unstack(history, axis=1))
    np.testing.assert_allclose(one_by_one, expected, rtol=1e-5, atol=1e-6)


def test_no_hidden_layer_is_an_error():
    with pytest.raises(OptionError, match=r"`hidden_dims` .*\(1 or more\)"):
        ActivationUnit(())
