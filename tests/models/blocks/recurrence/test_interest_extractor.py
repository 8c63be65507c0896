from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.recurrence import InterestExtractor


@pytest.mark.parametrize("length", [1, 3])
def test_contract(contract_step, arrays, length):
    contract_step(
        lambda: InterestExtractor(4),
        lambda batch: ([arrays.vectors(batch, 3) for _ in range(length)],),
    )


def test_it_is_keras_own_gru_with_its_weights(arrays):
    inputs = arrays.vectors(5, 7, 3)
    keras = tf.keras.layers.GRU(4, return_sequences=True)
    expected = keras(inputs)
    ours = InterestExtractor(4)
    ours.build(tf.TensorShape([None, 3]))
    biased = [w + 0.1 * arrays.vectors(*w.shape).numpy() for w in keras.get_weights()]
    keras.set_weights(biased)
    ours.set_weights(biased)
    expected = keras(inputs)
    np.testing.assert_allclose(
        tf.stack(ours(tf.unstack(inputs, axis=1)), axis=1), expected, rtol=1e-5, atol=1e-6
    )
