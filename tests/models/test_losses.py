"""The losses of clicks and of the auxiliary network."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.recurrence import AuxiliaryLogits
from merlin_sim.models.losses import auxiliary_loss, binary_cross_entropy


def auxiliary(click, noclick, mask=None):
    click, noclick = tf.constant([click]), tf.constant([noclick])
    mask = tf.ones_like(click, tf.bool) if mask is None else tf.constant([mask])
    return AuxiliaryLogits(click, noclick, mask)


def published(click, noclick, mask):
    click, noclick = 1 / (1 + np.exp(-np.array([click, noclick], np.float64))) + 1e-6
    return np.mean(mask * (-np.log(click) - np.log(1 - noclick)))


def test_the_auxiliary_loss_is_the_published_one_where_that_is_a_number():
    rng = np.random.default_rng(0)
    click, noclick = rng.uniform(-13, 13, [2, 50]).astype(np.float32)
    mask = rng.random(50) < 0.7
    ours = auxiliary_loss(auxiliary(click, noclick, mask))
    np.testing.assert_allclose(ours, published(click, noclick, mask), rtol=1e-5)


@pytest.mark.parametrize("logit", [14.0, 1e4, 1e30, np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_worst_mistakes_have_finite_losses_and_gradients(logit, dtype):
    logit = np.float32(min(logit, 6e4) if dtype == "float16" and np.isfinite(logit) else logit)
    noclick = tf.constant([[logit]])
    with tf.GradientTape() as tape:
        tape.watch(noclick)
        given = tf.cast(noclick, dtype)
        loss = auxiliary_loss(AuxiliaryLogits(-given, given, tf.constant([[True]])))
    gradient = tape.gradient(loss, noclick)
    assert not np.isnan(loss) and not np.isnan(gradient).any()
    if np.isfinite(logit):
        assert np.isfinite(loss)
        assert gradient.numpy() >= 0.99  # a mistake is never too bad to learn from


def test_the_auxiliary_loss_is_smooth_where_the_form_changes():
    logits = np.linspace(13.0, 13.3, 301, dtype=np.float32)
    losses = [float(auxiliary_loss(auxiliary([0.0], [logit]))) for logit in logits]
    steps = np.diff(losses)
    assert (steps > 0).all() and steps.max() < 3 * 0.0011


def test_only_real_positions_count_but_all_are_divided_by():
    whole = auxiliary_loss(auxiliary([1.0, 5.0], [-1.0, 5.0], [True, False]))
    first = auxiliary_loss(auxiliary([1.0], [-1.0]))
    np.testing.assert_allclose(whole, first / 2, rtol=1e-6)
    nothing = auxiliary(np.zeros(0, np.float32), np.zeros(0, np.float32))
    assert float(auxiliary_loss(nothing)) == 0.0, "no position"


@pytest.mark.parametrize("labels", [[1.0, 0.0], [[1], [0]]])
def test_cross_entropy_takes_labels_of_either_shape_and_weights(labels):
    logits = tf.constant([[0.0], [100.0]])
    loss = binary_cross_entropy(tf.constant(labels), logits)
    np.testing.assert_allclose(loss, (np.log(2) + 100) / 2, rtol=1e-6)
    weighed = binary_cross_entropy(tf.constant(labels), logits, tf.constant([2.0, 0.0]))
    np.testing.assert_allclose(weighed, np.log(2), rtol=1e-6)
