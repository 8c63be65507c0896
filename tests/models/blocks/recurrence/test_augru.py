from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.recurrence import AUGRU


@pytest.mark.parametrize("length", [1, 3])
def test_contract(contract_step, arrays, length):
    contract_step(
        lambda: AUGRU(4),
        lambda batch: (
            [arrays.vectors(batch, 3) for _ in range(length)],
            tf.nn.softmax(arrays.vectors(batch, length)),
        ),
    )


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("length", [1, 4])
def test_candidates_that_share_inputs_have_the_states_they_would_have_alone(arrays, rows, length):
    inputs, layer = [arrays.vectors(rows, 3) for _ in range(length)], AUGRU(4)
    attention = tf.nn.softmax(arrays.vectors(rows * 2, length))
    repeated = [tf.repeat(position, 2, axis=0) for position in inputs]
    alone = layer(repeated, attention)
    np.testing.assert_allclose(layer(inputs, attention, 2), alone, rtol=1e-5, atol=1e-6)
    number = tf.function(lambda count: layer(inputs, attention, count), autograph=False)(
        tf.constant(2)
    )
    np.testing.assert_allclose(number, alone, rtol=1e-5, atol=1e-6)


def test_it_follows_its_equations(arrays):
    inputs, attention = arrays.vectors(2, 3, 3).numpy(), np.array([[0.1, 0.2, 0.7]] * 2, np.float32)
    layer = AUGRU(4)
    final = layer(tf.unstack(inputs, axis=1), tf.constant(attention))
    gates_kernel, gates_bias, candidate_kernel, candidate_bias = layer.get_weights()
    state = np.zeros([2, 4])
    for t in range(3):
        both = np.concatenate([inputs[:, t], state], axis=1) @ gates_kernel + gates_bias
        reset, update = np.split(1 / (1 + np.exp(-both)), 2, axis=1)
        mixed = np.concatenate([inputs[:, t], reset * state], axis=1)
        candidate = np.tanh(mixed @ candidate_kernel + candidate_bias)
        update = (1 - attention[:, t : t + 1]) * update
        state = update * state + (1 - update) * candidate
    np.testing.assert_allclose(final, state, rtol=1e-5, atol=1e-6)


def test_biases_start_as_published():
    layer = AUGRU(4)
    layer.build(tf.TensorShape([None, 3]))
    assert (layer.gates_bias.numpy() == 1).all()
    assert (layer.candidate_bias.numpy() == 0).all()
