from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.recurrence.interest_evolution import InterestEvolution


@pytest.mark.parametrize("length", [1, 4])
def test_contract(contract_step, arrays, length):
    def inputs(batch):
        mask = arrays.mask(batch, length)
        history = arrays.vectors(batch, length, 3) * tf.cast(mask, tf.float32)[:, :, tf.newaxis]
        return arrays.vectors(batch, 3), history, mask

    contract_step(lambda: InterestEvolution(4), inputs)


def test_the_slope_of_the_target_starts_at_a_tenth():
    layer = InterestEvolution(4)
    layer.build(tf.TensorShape([None, 3]))
    np.testing.assert_allclose(layer.item_prelu.alpha, 0.1)
