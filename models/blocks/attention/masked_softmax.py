"""Softmax over the real positions of a history."""

from __future__ import annotations

import tensorflow as tf


def masked_softmax(scores: tf.Tensor, history_mask: tf.Tensor) -> tf.Tensor:
    """Softmax over time in float32, padded positions left out.

    A history without any real position has equal weights everywhere, as in the published
    implementation: whoever sums unmasked vectors with these weights multiplies by the mask first.

    >>> weights = masked_softmax(tf.constant([[0.0, 5.0, 5.0]]), tf.constant([[False, True, True]]))
    >>> weights.numpy().tolist()
    [[0.0, 0.5, 0.5]]

    Args:
        scores: [..., history].
        history_mask: bool, the same shape or one that is broadcast to it; True where a position
            is real and seen.

    Returns:
        [..., history], float32, each row summing to 1.
    """
    if scores.dtype != tf.float32:
        # A float16 score may have overflowed, and the softmax of an infinity is NaN.
        scores = tf.clip_by_value(tf.cast(scores, tf.float32), -1e30, 1e30)
    return tf.nn.softmax(tf.where(history_mask, scores, tf.float32.min), axis=-1)
