"""The published objective, from float32 logits."""

from __future__ import annotations

import tensorflow as tf

from ..recurrence.auxiliary_network import AuxiliaryLogits

PROBABILITY_EPSILON = 1e-6
"""What the published implementation adds to the auxiliary probabilities."""


def binary_cross_entropy(
    labels: tf.Tensor, logits: tf.Tensor, sample_weight: tf.Tensor | None = None
) -> tf.Tensor:
    """Return the mean binary cross-entropy over the batch.

    >>> round(float(binary_cross_entropy(tf.constant([1.0]), tf.constant([[0.0]]))), 6)
    0.693147

    Args:
        labels: One for each sample, in any shape: [samples], [users, candidates].
        logits: [samples, 1].
        sample_weight: One for each sample; None counts every sample once.
    """
    logits = tf.cast(logits, tf.float32)
    labels = tf.reshape(tf.cast(labels, tf.float32), tf.shape(logits))
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    if sample_weight is not None:
        losses *= tf.reshape(tf.cast(sample_weight, tf.float32), tf.shape(logits))
    return tf.reduce_mean(losses)


def auxiliary_loss(logits: AuxiliaryLogits, sample_weight: tf.Tensor | None = None) -> tf.Tensor:
    """Return the auxiliary loss of DIEN's interest extractor (https://arxiv.org/abs/1809.03672).

        mean over all positions of mask x (-log p_click - log(1 - p_noclick)),
        p = sigmoid(logit) + 1e-6

    The published ``1 - p_noclick`` falls below 0, and its logarithm is NaN, once
    sigmoid(-logit) < 1e-6. With s = softplus(logit) = -log sigmoid(-logit) the term is

        s - log(1 - 1e-6 exp(s))

    and here 1e-6 exp(s) is held at 1/2: the published value wherever sigmoid(-logit) > 2e-6, and
    beyond that a line with slope 1 in the logit, so that the worst mistakes still have a gradient.

    Args:
        logits: What the auxiliary network gives.
        sample_weight: One for each sample; None counts every sample once.
    """
    click_logits = tf.cast(logits.click, tf.float32)
    noclick_logits = tf.cast(logits.noclick, tf.float32)
    click = -tf.math.log(tf.sigmoid(click_logits) + PROBABILITY_EPSILON)
    negative_log = tf.math.softplus(noclick_logits)
    # The minimum is inside the exponential, where it keeps infinities out of the gradient too.
    ceiling = -tf.math.log(2.0 * PROBABILITY_EPSILON)
    noclick = negative_log - tf.math.log1p(
        -PROBABILITY_EPSILON * tf.exp(tf.minimum(negative_log, ceiling))
    )
    losses = tf.cast(logits.mask, tf.float32) * (click + noclick)  # [samples, short - 1]
    if sample_weight is not None:
        losses *= tf.reshape(tf.cast(sample_weight, tf.float32), [-1, 1])
    # A history of one position has no next one: 0 / 1, not 0 / 0.
    return tf.math.divide_no_nan(tf.reduce_sum(losses), tf.cast(tf.size(losses), tf.float32))
