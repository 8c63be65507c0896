"""The mean of a list's vectors: what a classifier reads of ids without an order."""

from __future__ import annotations

import tensorflow as tf


def mean_vectors(vectors: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Return the mean over each list of the vectors whose id is not 0; zeros for an empty list.

    >>> vectors = tf.constant([[[1.0], [3.0], [8.0]], [[5.0], [5.0], [5.0]]])
    >>> mean_vectors(vectors, tf.constant([[4, 2, 0], [0, 0, 0]])).numpy().tolist()
    [[2.0], [0.0]]

    Args:
        vectors: [..., length, dim].
        ids: [..., length], 0 where the list has ended.

    Returns:
        [..., dim].
    """
    mask = tf.cast(ids > 0, vectors.dtype)[..., tf.newaxis]
    total = tf.reduce_sum(vectors * mask, axis=-2)
    return tf.math.divide_no_nan(total, tf.reduce_sum(mask, axis=-2))
