from __future__ import annotations

import numpy as np
import tensorflow as tf

from merlin_sim.models.blocks.search.search_units import RandomProjection


def test_contract(contract_step, arrays):
    contract_step(lambda: RandomProjection(8), lambda batch: (arrays.vectors(batch, 6, 4),))


def test_signs_of_a_known_projection():
    projection = RandomProjection(2)
    projection.build(tf.TensorShape([None, 2]))
    projection.projection.assign([[1.0, -1.0], [1.0, 1.0]])
    codes = projection(tf.constant([[2.0, 1.0], [-2.0, 1.0], [0.0, 0.0]]))
    np.testing.assert_array_equal(codes, [[1, -1], [-1, 1], [1, 1]])


def test_it_is_drawn_once_and_never_trained(arrays):
    projection, vectors = RandomProjection(64), arrays.vectors(5, 4)
    first = projection(vectors).numpy()
    for training in (True, False):
        np.testing.assert_array_equal(projection(vectors, training=training), first)
    assert not projection.trainable_variables
    assert [v.shape for v in projection.non_trainable_variables] == [[4, 64]]


def test_codes_agree_as_often_as_the_angle_says():
    tf.keras.utils.set_random_seed(4)
    codes = RandomProjection(20_000)(tf.constant([[1.0, 0.0], [5.0, 5.0]])).numpy()
    np.testing.assert_allclose(np.mean(codes[0] == codes[1]), 0.75, atol=0.02)
