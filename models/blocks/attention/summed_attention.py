"""Attention without a softmax: how much of a history is about a candidate, and what it is like."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..serialization import register_block
from .target_attention import TargetAttention

FIRST_BIAS = -2.0
"""Where the biases start: a position that nothing is known of counts about an eighth."""


@register_block
class SummedAttention(TargetAttention):
    """Sum what each head finds, where a softmax would give its mean.

        w_t = sigmoid(score(t) + b)    over what a candidate may see,    n = sum_t w_t
        summed = [log(1 + n) / n  sum_t w_t h_t V,  log(1 + n)]    for each head

    with the scores of :class:`TargetAttention`. DIN's paper (https://arxiv.org/abs/1706.06978,
    section 4.3) leaves the softmax out too, to keep the intensity of interests; the logarithm keeps
    a thousand positions from outweighing all else. An empty history gives zeros.

    >>> attention = SummedAttention(heads=2, head_dim=3)
    >>> mask = tf.ones([1, 1, 3], tf.bool)
    >>> attention(tf.ones([1, 1, 4]), tf.ones([1, 3, 4]), mask).shape
    TensorShape([1, 1, 8])

    Args:
        heads: How many.
        head_dim: Length of the vectors that a head compares, and of those that it gives.
        time_dim: Length of the time vectors; 0 without.
    """

    @property
    def summed_dim(self) -> int:
        """Length of what a call gives: all heads' vectors and how much each found."""
        return self.attended_dim + self.heads

    def build(self, input_shape: Any) -> None:
        """Create kernels and biases for candidates of [users, candidates, dim]."""
        if self.built:
            return
        self.bias = self.add_weight(
            "bias",
            [self.heads],
            initializer=tf.keras.initializers.Constant(FIRST_BIAS),
            experimental_autocast=False,
        )
        super().build(input_shape)

    def call(
        self,
        candidates: tf.Tensor,
        history: tf.Tensor,
        history_mask: tf.Tensor,
        times: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Return what all heads sum up: [users, candidates, :attr:`summed_dim`].

        Args:
            candidates: [users, candidates, dim].
            history: [users, history, dim].
            history_mask: [users, candidates, history], bool, or one row for all candidates.
            times: [users, history, time_dim]; None without.
        """
        scores = self.scores(candidates, history, times)
        strengths = tf.sigmoid(scores + self.bias[:, tf.newaxis])
        weights = tf.where(history_mask[:, :, tf.newaxis, :], strengths, 0.0)
        found = tf.reduce_sum(weights, axis=-1)  # [users, candidates, heads]
        counted = tf.math.log1p(found)
        weights *= tf.math.divide_no_nan(counted, found)[..., tf.newaxis]
        summed = self.attend(weights, history)
        return tf.concat([summed, tf.cast(counted, summed.dtype)], axis=-1)
