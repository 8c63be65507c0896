from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.mlp import ReLULayers


@pytest.mark.parametrize("dims", [(), (8, 4)])
def test_contract(contract_step, arrays, dims):
    contract_step(lambda: ReLULayers(dims), lambda batch: (arrays.vectors(batch, 5),))


@pytest.mark.parametrize("width", [1, 8, 13])
def test_the_padding_changes_nothing_and_has_no_weights(width):
    layers = ReLULayers((6, 3))
    inputs = np.random.default_rng(width).standard_normal([4, width]).astype(np.float32)
    received = layers(tf.constant(inputs))
    first, second = layers.dense
    assert first.kernel.shape == [width, 6]
    hidden = np.maximum(inputs @ first.kernel.numpy() + first.bias.numpy(), 0)
    expected = np.maximum(hidden @ second.kernel.numpy() + second.bias.numpy(), 0)
    np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-6)
