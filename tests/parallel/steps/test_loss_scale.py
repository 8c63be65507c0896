from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.parallel.steps import loss_scale
from merlin_sim.parallel.steps.loss_scale import INITIAL_SCALE, LossScale


def test_float32_is_left_alone():
    scale = LossScale(active=False)
    gradients = [tf.constant([float("inf")])]
    same, finite = scale.unscale(gradients)
    scale.update(finite)
    assert same is gradients and bool(finite) and scale.scale.numpy() == 1.0


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_overflow_halves_and_is_reported(sparse, bad):
    scale = LossScale(active=True)
    gradient = tf.constant([[1.0], [bad]])
    if sparse:
        gradient = tf.IndexedSlices(gradient, tf.constant([0, 1]), [4, 1])
    _, finite = scale.unscale([tf.constant([2.0]), gradient])
    scale.update(finite)
    assert not bool(finite)
    assert scale.scale.numpy() == INITIAL_SCALE / 2


def test_gradients_come_back_unscaled():
    scale = LossScale(active=True)
    (dense, rows), finite = scale.unscale(
        [
            tf.constant([INITIAL_SCALE * 3]),
            tf.IndexedSlices(tf.constant([[INITIAL_SCALE]]), tf.constant([2]), [4, 1]),
        ]
    )
    assert bool(finite)
    np.testing.assert_allclose(dense, [3.0])
    np.testing.assert_allclose(rows.values, [[1.0]])
    assert isinstance(rows, tf.IndexedSlices)


def test_it_grows_after_enough_good_steps_in_a_row(monkeypatch):
    monkeypatch.setattr(loss_scale, "GROWTH_STEPS", 3)
    scale = LossScale(active=True)
    seen = []
    for finite in [True, True, False, True, True, True, True]:
        scale.update(tf.constant(finite))
        seen.append(scale.scale.numpy() / INITIAL_SCALE)
    assert seen == [1, 1, 0.5, 0.5, 0.5, 1, 1]


def test_it_never_falls_below_one():
    scale = LossScale(active=True)
    for _ in range(40):
        scale.update(tf.constant(False))
    assert scale.scale.numpy() == 1.0


def test_a_static_scale_stays_and_skips_what_overflows():
    scale = LossScale(active=True, static=1024.0)
    for values, is_finite in (([1024.0], True), ([float("inf")], False)):
        (gradient,), finite = scale.unscale([tf.constant(values)])
        scale.update(finite)
        assert bool(finite) == is_finite and float(scale.scale) == 1024
    (gradient,), _ = scale.unscale([tf.constant([2048.0])])
    assert gradient.numpy().tolist() == [2.0]
