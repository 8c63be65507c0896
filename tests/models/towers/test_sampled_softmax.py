"""The loss of retrieval, beside one worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.losses import sampled_softmax_loss


def by_hand(logits, items, chances, weights):
    costs = []
    for row, weight in enumerate(weights):
        others = [j for j in range(len(items)) if j == row or items[j] != items[row]]
        powers = {j: np.exp(logits[row][j]) / chances[j] for j in others}
        costs.append(-weight * np.log(powers[row] / sum(powers.values())))
    return sum(costs) / sum(weights)


def test_three_rows_by_hand():
    """Row 0: 2/.5 of 2/.5 + 3/.2; the third row has the same item and is left out."""
    logits = np.log([[2.0, 3.0, 5.0], [1.0, 4.0, 1.0], [1.0, 1.0, 1.0]])
    items, chances, weights = [7, 8, 7], [0.5, 0.2, 0.5], [1.0, 3.0, 0.0]
    expected = (-np.log(4 / (4 + 15)) - 3 * np.log(20 / (2 + 20 + 2))) / 4
    assert by_hand(logits, items, chances, weights) == pytest.approx(expected)
    loss = sampled_softmax_loss(
        tf.constant(logits, tf.float32),
        tf.constant(items),
        tf.math.log(tf.constant(chances)),
        tf.constant(weights),
    )
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_any_rows_and_their_gradient():
    random = np.random.default_rng(3)
    logits = random.normal(size=(9, 9)).astype(np.float32)
    items, weights = random.integers(1, 5, 9), random.random(9).astype(np.float32)
    chances = random.random(6).astype(np.float32)[items]
    given = tf.Variable(logits)
    with tf.GradientTape() as tape:
        loss = sampled_softmax_loss(
            given, tf.constant(items), tf.math.log(chances), tf.constant(weights)
        )
    assert float(loss) == pytest.approx(by_hand(logits, items, chances, weights), rel=1e-4)
    gradient = tape.gradient(loss, given).numpy()
    np.testing.assert_allclose(gradient.sum(axis=1), 0, atol=1e-6)  # a softmax's
    repeated = (items[:, None] == items[None]) & ~np.eye(9, dtype=bool)
    assert repeated.any() and not gradient[repeated].any()


def test_a_batch_without_a_click_costs_nothing():
    """As a rank has it that is given a filler."""
    given = tf.Variable(tf.ones([1, 1]))
    with tf.GradientTape() as tape:
        loss = sampled_softmax_loss(given, tf.constant([0]), tf.zeros([1]), tf.zeros([1]))
    assert float(loss) == 0.0
    assert tape.gradient(loss, given).numpy().tolist() == [[0.0]]
