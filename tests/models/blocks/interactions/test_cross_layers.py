from __future__ import annotations

import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.interactions import CrossLayers


@pytest.mark.parametrize("rank", [3, None])
def test_contract(contract_step, arrays, rank):
    contract_step(lambda: CrossLayers(2, rank), lambda batch: (arrays.vectors(batch, 4),))


def test_each_layer_multiplies_the_inputs_in():
    cross = CrossLayers(layers=2, rank=1)
    inputs = tf.constant([[1.0, 2.0]])
    cross.build(inputs.shape)
    for u, v in zip(cross.u, cross.v, strict=True):
        u.kernel.assign([[1.0], [1.0]])
        v.kernel.assign([[1.0, 0.0]])
        v.bias.assign([0.0, 1.0])
    # x1 = x0 * [3, 1] + x0 = [4, 4]; x2 = x0 * [8, 1] + x1 = [12, 6]
    np.testing.assert_array_equal(cross(inputs), [[12.0, 6.0]])


@pytest.mark.parametrize("rank", [3, None])
def test_merlins_cross_block_gives_the_same(arrays, rank):
    inputs = arrays.vectors(5, 4)
    merlins, ours = mm.CrossBlock(2, low_rank_dim=rank), CrossLayers(2, rank)
    assert len(merlins(inputs)) == len(ours(inputs)) == 5
    for layer, u, v in zip(merlins.layers, ours.u or [None] * 2, ours.v, strict=True):
        v.set_weights(layer.dense.dense.get_weights())
        if rank:
            u.set_weights(layer.dense.dense_u.get_weights())
    assert len(ours.weights) == len(merlins.weights)
    np.testing.assert_allclose(ours(inputs), merlins(inputs), rtol=1e-6)
