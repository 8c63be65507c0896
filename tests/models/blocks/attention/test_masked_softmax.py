from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.attention import masked_softmax


def test_padding_has_no_weight_and_an_empty_row_equal_ones():
    mask = tf.constant([[False, True, True], [False, False, False]])
    weights = masked_softmax(tf.constant([[9.0, 1.0, 1.0], [9.0, 1.0, 1.0]]), mask)
    np.testing.assert_allclose(weights, [[0.0, 0.5, 0.5], [1 / 3] * 3], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_extreme_scores_are_no_nan(dtype):
    largest = np.finfo(dtype).max
    scores = tf.constant([[largest, -largest, 0.0]], dtype)
    if dtype == np.float16:
        scores = tf.concat([scores * 2, scores], axis=0)  # infinities
    weights = masked_softmax(scores, tf.ones(scores.shape, tf.bool))
    np.testing.assert_array_equal(weights, [[1.0, 0.0, 0.0]] * scores.shape[0])
