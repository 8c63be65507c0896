"""Fused arithmetic gives what TensorFlow's operations give one by one, but for rounding."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from merlin_sim.foundation.gpu_forms import gpu_forms
from merlin_sim.parallel.steps.fused import fused, fused_arithmetic


def gated(state, gate, of_row):
    gate = tf.sigmoid(gate + of_row)
    return gate * state, tf.tanh(state)


def computed(function, is_fused):
    state, gate = tf.random.stateless_normal([2, 6, 4], [1, 2])
    of_row = tf.constant([[0.5, -1.0, 0.0, 2.0]])  # one for all: its gradient is a sum

    @tf.function(input_signature=[tf.TensorSpec([None, 4])] * 3, autograph=False)
    def gradients(*inputs):
        with fused_arithmetic(is_fused), tf.GradientTape() as tape:
            tape.watch(inputs)
            product, activated = function(*inputs)
            loss = tf.reduce_sum(product**2) + tf.reduce_sum(activated)
        return product, activated, *tape.gradient(loss, inputs)

    found = gradients(state, gate, of_row)
    kinds = {op.type for op in gradients.get_concrete_function().graph.get_operations()}
    return found, "Tanh" not in kinds


def test_outputs_and_gradients_are_the_same():
    plain, is_compiled = computed(fused(gated), False)
    assert not is_compiled
    compiled, is_compiled = computed(fused(gated), True)
    assert is_compiled
    for one, other in zip(compiled, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_gpu_has_forms_of_its_own():
    with gpu_forms(True):
        assert not computed(fused(gated), True)[1]
