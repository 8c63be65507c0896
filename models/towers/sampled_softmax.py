"""The loss of retrieval: a softmax over the items of the batch, corrected for their popularity."""

from __future__ import annotations

import tensorflow as tf

MASKED = -1e9
"""The logit of an item that is left out of a softmax; its exponential is 0."""


def sampled_softmax_loss(
    logits: tf.Tensor,
    items: tf.Tensor,
    log_chances: tf.Tensor,
    weights: tf.Tensor,
) -> tf.Tensor:
    """Return the mean over clicked rows of -log p(own item), all rows' items being the sample.

    A row of item 0 is none: it is there so that all batches are equally long.

        p(i) = exp(s(u, i) - log Q(i)) / sum over j of the batch exp(s(u, j) - log Q(j))

    The items of a batch are drawn by their popularity Q: without the correction
    (https://doi.org/10.1145/3298689.3346996, equation 3) a popular item would be pushed away as
    often as it is drawn. Other rows with the own item are left out: they are no mistakes.

    >>> logits = tf.math.log(tf.constant([[2.0, 1.0], [1.0, 1.0]]))
    >>> chances = tf.math.log(tf.constant([0.5, 0.25]))
    >>> loss = sampled_softmax_loss(logits, tf.constant([7, 9]), chances, tf.constant([1.0, 0.0]))
    >>> round(float(tf.exp(-loss)), 6)  # 2 / 0.5 over that and 1 / 0.25
    0.5

    Args:
        logits: [rows, rows], of each row's user and each row's item, float32.
        items: [rows] Ids of the items.
        log_chances: [rows] The logarithm of each item's chance to be in a place of the batch.
        weights: [rows] What each row counts: 0 where nothing was clicked.
    """
    same = tf.equal(items[:, tf.newaxis], items[tf.newaxis])
    others = tf.logical_and(same, tf.logical_not(tf.eye(tf.shape(items)[0], dtype=tf.bool)))
    others |= tf.equal(items, 0)[tf.newaxis]
    corrected = tf.where(others, MASKED, logits - log_chances[tf.newaxis])
    own = tf.linalg.diag_part(corrected)
    costs = tf.reduce_logsumexp(corrected, axis=1) - own
    return tf.math.divide_no_nan(tf.reduce_sum(weights * costs), tf.reduce_sum(weights))
