from __future__ import annotations

import numpy as np
import tensorflow as tf

from merlin_sim.models.blocks.attention import SummedAttention


def test_contract(contract_step, arrays):
    def inputs(batch):
        vectors = arrays.vectors(batch, 3, 4), arrays.vectors(batch, 6, 4)
        return (*vectors, arrays.masks(batch, 3, 6))

    contract_step(lambda: SummedAttention(2, 3), inputs)


def test_it_is_the_weighed_mean_times_the_logarithm_of_how_much(arrays):
    attention = SummedAttention(1, 3)
    target, history, mask = arrays.vectors(5, 3, 4), arrays.vectors(5, 6, 4), arrays.masks(5, 3, 6)
    ours = attention(target, history, mask).numpy()
    query, key, value, bias = (
        variable.numpy()
        for variable in (
            *(attention.target_kernel, attention.history_kernel),
            *(attention.value_kernel, attention.bias),
        )
    )
    for user, place in np.ndindex(5, 3):
        items = history[user].numpy()
        scores = (items @ key) @ (target[user, place].numpy() @ query) / np.sqrt(3) + bias
        weights = mask[user, place].numpy() / (1 + np.exp(-scores))
        count = weights.sum()
        mean = weights @ (items @ value) / max(count, 1e-30)
        expected = [*(np.log1p(count) * mean), np.log1p(count)]
        np.testing.assert_allclose(ours[user, place], expected, rtol=1e-4, atol=1e-6)
    assert not ours[0].any(), "an empty history"


def test_it_reports_how_often_where_a_softmax_cannot():
    attention = SummedAttention(2, 3)
    vectors = tf.ones([1, 8, 4])
    once, often = (tf.range(8)[tf.newaxis, tf.newaxis] < count for count in (1, 8))
    few, many = (attention(tf.ones([1, 1, 4]), vectors, mask).numpy() for mask in (once, often))
    assert (np.abs(many) > 2 * np.abs(few)).all()
