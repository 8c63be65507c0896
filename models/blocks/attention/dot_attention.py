"""Dot products of a target with a history, and sums of the history weighed by them."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from .masked_softmax import masked_softmax


def dot_scores(target_item: tf.Tensor, history: tf.Tensor) -> tf.Tensor:
    """Return the dot product of the target with each position: [batch, history], float32."""
    target_item = tf.cast(target_item, tf.float32)[:, tf.newaxis, :]  # [batch, 1, dim]
    products = tf.matmul(target_item, tf.cast(history, tf.float32), transpose_b=True)
    return tf.squeeze(products, axis=1)


def attention_weights(scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Return the softmax of the scores where ``mask`` is True, and 0 elsewhere."""
    return masked_softmax(scores, mask) * tf.cast(mask, tf.float32)


def candidate_scores(history: tf.Tensor, mask: tf.Tensor) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return what scores one user's history for many candidates, very low where padded.

    Args:
        history: [history, dim], float32.
        mask: [history], bool.

    Returns:
        [candidates, dim] -> [candidates, history].
    """
    lowered = tf.where(mask, 0.0, -1e30)

    def score(candidates: tf.Tensor) -> tf.Tensor:
        return tf.nn.bias_add(tf.matmul(candidates, history, transpose_b=True), lowered)

    return score


def dot_attention_sums(
    target_item: tf.Tensor,
    history: tf.Tensor,
    weights: list[tf.Tensor],
    constant_rows: list[tf.Tensor],
) -> list[tf.Tensor]:
    """Attend to a history over several masks, and sum it with constant weights, in one product.

        sum_t softmax(scores over mask)_t h_t    for each mask,    sum_t row_t h_t    for each row

    For attention by the dot product alone: ``weights`` have to be :func:`attention_weights` of
    :func:`dot_scores` of the same target and history. The gradient is that of the whole, scores
    included, written out for this softmax of these products: weights that were made in any other
    way are summed rightly and get a wrong gradient without a word. Whoever scores otherwise
    multiplies weights and history with ``tf.matmul``.

    With w a softmax, g its sum's gradient and d = w (h g - sum_s w_s h_s g) that of the scores, the
    history's gradient is the sum of w g', the rows' share and d target', which again is one
    product. Differentiated piece by piece, the history's gradient would be made once for each use
    of it and added up.

    Args:
        target_item: [batch, dim].
        history: [batch, history, dim].
        weights: Each [batch, history], float32; no gradient flows through this argument.
        constant_rows: Each [batch, history], float32; no gradient flows through them.

    Returns:
        One [batch, dim], float32, for each of the weights and then for each row.
    """
    rows = tf.stop_gradient(tf.stack([*weights, *constant_rows], axis=1))  # [batch, rows, history]
    attended = len(weights)

    @tf.custom_gradient
    def sums(target: tf.Tensor, vectors: tf.Tensor) -> tuple[tf.Tensor, Callable[..., object]]:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            soft = rows[:, :attended]
            of_rows = tf.matmul(upstream[:, :attended], vectors, transpose_b=True)
            mean = tf.reduce_sum(soft * of_rows, axis=-1, keepdims=True)
            of_scores = tf.reduce_sum(soft * (of_rows - mean), axis=1, keepdims=True)
            left = tf.concat([rows, of_scores], axis=1)  # [batch, rows + 1, history]
            right = tf.concat([upstream, target[:, tf.newaxis, :]], axis=1)
            of_target = tf.squeeze(tf.matmul(of_scores, vectors), axis=1)  # [batch, dim]
            return of_target, tf.matmul(left, right, transpose_a=True)

        return tf.matmul(rows, vectors), gradient  # [batch, rows, dim]

    products = sums(tf.cast(target_item, tf.float32), tf.cast(history, tf.float32))
    return list(tf.unstack(products, num=attended + len(constant_rows), axis=1))
