from __future__ import annotations

import numpy as np
import tensorflow as tf

from merlin_sim.models.blocks.interactions import DotInteraction


def test_contract(contract_step, arrays):
    contract_step(DotInteraction, lambda batch: (arrays.vectors(batch, 4, 6),))


def test_the_gradient_is_that_of_all_products():
    vectors = tf.Variable(np.random.default_rng(0).standard_normal([3, 5, 4]), dtype=tf.float64)
    weights = np.random.default_rng(1).standard_normal([3, 10])
    rows, columns = np.tril_indices(5, -1)

    def plainly():
        products = tf.einsum("bid,bjd->bij", vectors, vectors)
        return tf.gather_nd(tf.transpose(products, [1, 2, 0]), np.stack([rows, columns], 1))

    with tf.GradientTape(persistent=True) as tape:
        ours = DotInteraction(dtype="float64")(tf.convert_to_tensor(vectors))
        theirs = tf.transpose(plainly())
        sums = [tf.reduce_sum(part * weights) for part in (ours, theirs)]
    np.testing.assert_allclose(ours, theirs)
    expected, received = (tape.gradient(part, vectors) for part in reversed(sums))
    np.testing.assert_allclose(received, expected)


def test_one_vector_has_no_pair():
    assert DotInteraction()(tf.ones([2, 1, 4])).shape == [2, 0]
