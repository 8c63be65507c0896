"""The paper's exact search unit: several heads, over items and times."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..attention.dot_attention import attention_weights, dot_attention_sums
from ..checks import check_positive
from ..serialization import register_block
from ..shapes import sizes
from .search_and_attention import (
    AttentionUnit,
    LongHistory,
    LongInterest,
    SearchOptions,
    SearchResult,
    Target,
    dot_weights,
    mean_weights,
    register_attention_unit,
)

DEFAULT_HEADS = 4
"""Heads of the attention over items and times, unless set."""


@register_attention_unit("multi_head")
@register_block
class MultiHeadSearchUnit(AttentionUnit):
    """Multi-head attention to what the search kept (SIM, equations 5 to 7).

        z_t = [h_t, time vector of t]
        weights_i = softmax((W_i z_t) . (V_i target))   over the kept t
        attended = [sum_t weights_1t z_t, ..., sum_t weights_qt z_t]

    (W_i z) . (V_i e) = z . (W_i' V_i e): one vector per head and candidate is multiplied with the
    history, not a matrix with every position.

    Args:
        heads: How many.
        head_dim: Length of the vectors that a head compares.
        time_dim: Length of the time vectors; 0 without.
    """

    def __init__(self, heads: int, head_dim: int, time_dim: int = 0, **kwargs: Any) -> None:
        """Check the options."""
        super().__init__(autocast=False, **kwargs)
        self.heads = check_positive("heads", heads)
        self.head_dim = check_positive("head_dim", head_dim)
        self.time_dim = time_dim
        self.reads_times = time_dim > 0

    @classmethod
    def from_options(
        cls, options: SearchOptions, item_dim: int, time_dim: int, **kwargs: Any
    ) -> MultiHeadSearchUnit:
        """Make the unit for ``heads``, :data:`DEFAULT_HEADS` where that is None."""
        return cls(options.heads or DEFAULT_HEADS, item_dim, time_dim, **kwargs)

    def attended_dim(self, item_dim: int) -> int:
        """Return the length of all heads' vectors, items and times."""
        return self.heads * (item_dim + self.time_dim)

    def build(self, input_shape: Any) -> None:
        """Create the kernels for candidates of [users, candidates, dim]."""
        shape = input_shape.vector if isinstance(input_shape, Target) else input_shape
        dim = int(shape[-1])
        width = [self.heads, self.head_dim]
        self.target_kernel = self.add_weight(
            "target_kernel", [dim, *width], experimental_autocast=False
        )
        self.history_kernel = self.add_weight(
            "history_kernel", [dim + self.time_dim, *width], experimental_autocast=False
        )
        super().build(input_shape)

    def weights_over(self, target: Target, history: LongHistory, mask: tf.Tensor) -> tf.Tensor:
        """Return each head's weights over ``mask``: [users, candidates, heads, long], float32."""
        return self._weights(target, with_times(history), mask)

    def _weights(self, target: Target, vectors: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        users, candidates, _ = sizes(target.vector)
        query = tf.einsum("umd,dhk->umhk", tf.cast(target.vector, tf.float32), self.target_kernel)
        query = tf.einsum("umhk,zhk->umhz", query, self.history_kernel)
        query = tf.reshape(query, [users, candidates * self.heads, vectors.shape[-1]])
        scores = tf.matmul(query, vectors, transpose_b=True)
        scores = tf.reshape(scores, [users, candidates, self.heads, sizes(vectors)[1]])
        return attention_weights(scores, mask[:, :, tf.newaxis, :])

    def call(
        self,
        target: Target,
        history: LongHistory,
        found: SearchResult,
        stage_one: bool = False,
    ) -> LongInterest:
        """Attend to what the search found; for ``stage_one`` to the whole history too.

        The weights are the unit's own. Stage one's attention is by the dot product, and there the
        search's weights are taken where it has them.
        """
        vectors = with_times(history)
        weights = self._weights(target, vectors, found.selected)
        users, candidates, heads, long = sizes(weights)
        weights = tf.reshape(weights, [users, candidates * heads, long])
        attended = tf.matmul(weights, vectors)  # [users, candidates x heads, dim + time_dim]
        attended = tf.reshape(attended, [users, candidates, heads * vectors.shape[-1]])
        whole = [dot_weights(target, history, found).whole] if stage_one else []
        rows = [mean_weights(target, found.selected)]
        sums = dot_attention_sums(target.vector, history.vectors, whole, rows)
        *searched, mean = [tf.cast(vector, self.compute_dtype) for vector in sums]
        attended = tf.cast(attended, self.compute_dtype)
        return LongInterest(attended, mean, searched[0] if stage_one else None)

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the unit."""
        return {
            **super().get_config(),
            "heads": self.heads,
            "head_dim": self.head_dim,
            "time_dim": self.time_dim,
        }


def with_times(history: LongHistory) -> tf.Tensor:
    """Put the time vectors beside the items': [users, long, dim + time_dim], float32."""
    vectors = tf.cast(history.vectors, tf.float32)
    if history.time_vectors is None:
        return vectors
    return tf.concat([vectors, tf.cast(history.time_vectors, tf.float32)], axis=-1)
