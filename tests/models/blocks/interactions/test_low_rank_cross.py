from __future__ import annotations

import numpy as np
import tensorflow as tf

from merlin_sim.models.blocks.interactions.low_rank_cross import LowRankCross


def test_contract(contract_step, arrays):
    contract_step(lambda: LowRankCross(2, 3), lambda batch: (arrays.vectors(batch, 4),))


def test_each_layer_multiplies_the_inputs_in():
    cross = LowRankCross(layers=2, rank=1)
    inputs = tf.constant([[1.0, 2.0]])
    cross.build(inputs.shape)
    for u, v in zip(cross.u, cross.v, strict=True):
        u.kernel.assign([[1.0], [1.0]])
        v.kernel.assign([[1.0, 0.0]])
        v.bias.assign([0.0, 1.0])
    # x1 = x0 * [3, 1] + x0 = [4, 4]; x2 = x0 * [8, 1] + x1 = [12, 6]
    np.testing.assert_array_equal(cross(inputs), [[12.0, 6.0]])
