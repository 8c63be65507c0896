"""Dot products of candidates with a history, and sums of the history weighed by them."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from ..shapes import sizes
from .masked_softmax import masked_softmax


def dot_scores(candidates: tf.Tensor, history: tf.Tensor) -> tf.Tensor:
    """Return the dot product of each candidate with each position of its user's history.

    Args:
        candidates: [users, candidates, dim].
        history: [users, history, dim].

    Returns:
        [users, candidates, history], float32.
    """
    history = tf.cast(history, tf.float32)
    return tf.matmul(tf.cast(candidates, tf.float32), history, transpose_b=True)


def attention_weights(scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Return the softmax of the scores where ``mask`` is True, and 0 elsewhere."""
    return masked_softmax(scores, mask) * tf.cast(mask, tf.float32)


def dot_attention_sums(
    candidates: tf.Tensor,
    history: tf.Tensor,
    weights: list[tf.Tensor],
    constant_rows: list[tf.Tensor],
) -> list[tf.Tensor]:
    """Attend to a history over several masks, and sum it with constant weights, in one product.

        sum_t softmax(scores over mask)_t h_t    for each mask,    sum_t row_t h_t    for each row

    For attention by the dot product alone: ``weights`` have to be :func:`attention_weights` of
    :func:`dot_scores` of the same candidates and history. The gradient is that of the whole, scores
    included, written out for this softmax of these products: weights that were made in any other
    way are summed rightly and get a wrong gradient without a word. Whoever scores otherwise
    multiplies weights and history with ``tf.matmul``.

    With w a softmax, g its sum's gradient and d = w (h g - sum_s w_s h_s g) that of the scores, the
    history's gradient is the sum of w g', the rows' share and d candidate', over all candidates of
    the user, which again is one product. Differentiated piece by piece, the history's gradient
    would be made once for each use of it and added up.

    Args:
        candidates: [users, candidates, dim].
        history: [users, history, dim].
        weights: Each [users, candidates, history], float32; no gradient flows through them.
        constant_rows: Each like ``weights``; no gradient flows through them.

    Returns:
        One [users, candidates, dim], float32, for each of the weights and then for each row.
    """
    # The masks side by side, so that a user's candidates and masks are the rows of one product.
    rows = tf.stop_gradient(tf.stack([*weights, *constant_rows], axis=1))
    attended = len(weights)
    users, masks, count, length = sizes(rows)

    def flat(parts: tf.Tensor) -> tf.Tensor:
        """[users, masks, candidates, ...] -> [users, masks x candidates, ...]."""
        _, some, _, last = sizes(parts)
        return tf.reshape(parts, [users, some * count, last])

    @tf.custom_gradient
    def sums(target: tf.Tensor, vectors: tf.Tensor) -> tuple[tf.Tensor, Callable[..., object]]:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            soft = rows[:, :attended]
            of_rows = tf.matmul(flat(upstream[:, :attended]), vectors, transpose_b=True)
            of_rows = tf.reshape(of_rows, [users, attended, count, length])
            mean = tf.reduce_sum(soft * of_rows, axis=-1, keepdims=True)
            of_scores = tf.reduce_sum(soft * (of_rows - mean), axis=1)
            left = tf.concat([flat(rows), of_scores], axis=1)
            right = tf.concat([flat(upstream), target], axis=1)
            return tf.matmul(of_scores, vectors), tf.matmul(left, right, transpose_a=True)

        products = tf.matmul(flat(rows), vectors)
        return tf.reshape(products, [users, masks, count, vectors.shape[-1]]), gradient

    products = sums(tf.cast(candidates, tf.float32), tf.cast(history, tf.float32))
    return list(tf.unstack(products, num=masks, axis=1))
