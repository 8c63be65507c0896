"""Scaled attention of a candidate to a history, with several heads and kernels of its own."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block

from ..checks import check_positive
from ..serialization import register_block
from ..shapes import beside_windows, by_window, sizes
from .dot_attention import attention_weights


@register_block
class TargetAttention(Block):
    """Attend with each head to what a candidate may see (TWIN, arXiv 2302.02352, equations 5 to 8).

        score_i(t) = (e Q_i) . (h_t K_i) / sqrt(head_dim) + c_t b_i
        attended = [sum_t softmax(score_1)_t h_t V_1, ..., sum_t softmax(score_q)_t h_t V_q]

    c_t is what is known of the position beside the item, here its time, and b_i weighs it; without
    times there is no such term. Neither keys nor values of positions are made: (e Q) . (h K) =
    (e Q K') . h, so one vector for each head and candidate is multiplied with the history, and what
    is summed is the history itself. An empty history gives zeros.

    Scores, softmaxes and sums are float32 under every policy: they may decide a search.

    >>> attention = TargetAttention(heads=2, head_dim=3)
    >>> mask = tf.constant([[[False, True, True]]])
    >>> attention(tf.ones([1, 1, 4]), tf.ones([1, 3, 4]), mask).shape
    TensorShape([1, 1, 6])

    Args:
        heads: How many.
        head_dim: Length of the vectors that a head compares, and of those that it gives.
        time_dim: Length of the time vectors; 0 without.
    """

    def __init__(
        self, heads: int = 4, head_dim: int = 16, time_dim: int = 0, **kwargs: Any
    ) -> None:
        """Check the options."""
        super().__init__(autocast=False, **kwargs)
        self.heads = check_positive("heads", heads)
        self.head_dim = check_positive("head_dim", head_dim)
        self.time_dim = time_dim

    @property
    def attended_dim(self) -> int:
        """Length of what all heads give."""
        return self.heads * self.head_dim

    def build(self, input_shape: Any) -> None:
        """Create the kernels for candidates of [users, candidates, dim]."""
        if self.built:  # by another unit that has this attention too
            return
        dim = int(input_shape[-1])
        self.target_kernel = self._kernel("target_kernel", dim, self.attended_dim)
        self.history_kernel = self._kernel("history_kernel", dim, self.attended_dim)
        self.value_kernel = self._kernel("value_kernel", dim, self.attended_dim)
        if self.time_dim:
            self.time_kernel = self._kernel("time_kernel", self.time_dim, self.heads)
        super().build(input_shape)

    def _kernel(self, name: str, rows: int, columns: int) -> Any:
        return self.add_weight(name, [rows, columns], experimental_autocast=False)

    def _by_head(self, kernel: tf.Variable) -> tf.Tensor:
        """[dim, heads x head_dim] -> [dim, heads, head_dim]."""
        return tf.reshape(kernel, [-1, self.heads, self.head_dim])

    def scores(
        self, candidates: tf.Tensor, history: tf.Tensor, times: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Return the scores before the softmax: [users, candidates, heads, history], float32.

        Args:
            candidates: [users, candidates, dim].
            history: [users, history, dim].
            times: [users, history, time_dim], or [users, windows, history, time_dim] with a
                window for as many candidates that follow each other; None without.
        """
        users, count, dim = sizes(candidates)
        length = sizes(history)[1]
        query = tf.matmul(tf.cast(candidates, tf.float32), self.target_kernel)
        query = tf.reshape(query, [users, count, self.heads, self.head_dim])
        query = tf.einsum("uchk,dhk->uchd", query, self._by_head(self.history_kernel))
        query = tf.reshape(query, [users, count * self.heads, dim]) / self.head_dim**0.5
        scores = tf.matmul(query, tf.cast(history, tf.float32), transpose_b=True)
        scores = tf.reshape(scores, [users, count, self.heads, length])
        if not self.time_dim:
            return scores
        of_windows = by_window(tf.cast(times, tf.float32))
        of_time = tf.einsum("uwlt,th->uwhl", of_windows, self.time_kernel)
        return scores + beside_windows(of_time, candidates)

    def attend(self, weights: tf.Tensor, history: tf.Tensor) -> tf.Tensor:
        """Sum a history with each head's weights.

        Args:
            weights: [users, candidates, heads, history], float32.
            history: [users, history, dim].

        Returns:
            [users, candidates, heads x head_dim].
        """
        users, count, heads, length = sizes(weights)
        weights = tf.reshape(weights, [users, count * heads, length])
        sums = tf.matmul(weights, tf.cast(history, tf.float32))
        sums = tf.reshape(sums, [users, count, heads, sizes(history)[2]])
        attended = tf.einsum("uchd,dhk->uchk", sums, self._by_head(self.value_kernel))
        attended = tf.reshape(attended, [users, count, self.attended_dim])
        return tf.cast(attended, self.compute_dtype)

    def call(
        self,
        candidates: tf.Tensor,
        history: tf.Tensor,
        history_mask: tf.Tensor,
        times: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Return the user's interest in each candidate: [users, candidates, heads x head_dim].

        Args:
            candidates: [users, candidates, dim].
            history: [users, history, dim].
            history_mask: [users, candidates, history], bool, or one row for all candidates.
            times: As of :meth:`scores`.
        """
        scores = self.scores(candidates, history, times)
        weights = attention_weights(scores, history_mask[:, :, tf.newaxis, :])
        return self.attend(weights, history)

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        config = super().get_config()
        config.pop("autocast", None)
        return {
            **config,
            "heads": self.heads,
            "head_dim": self.head_dim,
            "time_dim": self.time_dim,
        }
