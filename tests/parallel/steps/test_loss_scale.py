from __future__ import annotations

import numpy as np
import tensorflow as tf

from merlin_sim.parallel.steps import loss_scale
from merlin_sim.parallel.steps.loss_scale import INITIAL_SCALE, LossScale


def test_gradients_come_back_unscaled_and_overflow_halves():
    scale = LossScale(active=True)
    given = tf.IndexedSlices(tf.constant([[INITIAL_SCALE]]), tf.constant([2]), [4, 1])
    (dense, rows), finite = scale.unscale([tf.constant([INITIAL_SCALE * 3]), given])
    assert bool(finite) and isinstance(rows, tf.IndexedSlices)
    np.testing.assert_allclose(dense, [3.0])
    np.testing.assert_allclose(rows.values, [[1.0]])
    for bad in (float("inf"), float("nan")):
        gradient = tf.constant([[1.0], [bad]])
        for broken in (gradient, tf.IndexedSlices(gradient, tf.constant([0, 1]), [4, 1])):
            scale = LossScale(active=True)
            _, finite = scale.unscale([tf.constant([2.0]), broken])
            scale.update(finite)
            assert not bool(finite)
            assert scale.scale.numpy() == INITIAL_SCALE / 2


def test_it_grows_after_enough_good_steps_in_a_row(monkeypatch):
    monkeypatch.setattr(loss_scale, "GROWTH_STEPS", 3)
    scale = LossScale(active=True)
    seen = []
    for finite in [True, True, False, True, True, True, True]:
        scale.update(tf.constant(finite))
        seen.append(scale.scale.numpy() / INITIAL_SCALE)
    assert seen == [1, 1, 0.5, 0.5, 0.5, 1, 1]
    for _ in range(40):
        scale.update(tf.constant(False))
    assert scale.scale.numpy() == 1.0, "it never falls below one"


def test_a_static_scale_stays_and_skips_what_overflows():
    scale = LossScale(active=True, static=1024.0)
    for values, is_finite in (([1024.0], True), ([float("inf")], False)):
        (gradient,), finite = scale.unscale([tf.constant(values)])
        scale.update(finite)
        assert bool(finite) == is_finite and float(scale.scale) == 1024
    (gradient,), _ = scale.unscale([tf.constant([2048.0])])
    assert gradient.numpy().tolist() == [2.0]
