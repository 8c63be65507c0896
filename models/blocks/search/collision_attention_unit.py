"""SDIM's attention: the sum of what collides with the candidate."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..attention.dot_attention import attention_weights, dot_attention_sums, dot_scores
from ..serialization import register_block
from .search_and_attention import (
    AttentionUnit,
    LongHistory,
    LongInterest,
    SearchResult,
    Target,
    dot_weights,
    search_strength,
)


@register_block
class CollisionAttentionUnit(AttentionUnit):
    """Sum a history by the strength of a search (SDIM, https://arxiv.org/abs/2205.10249).

        attended = sum_t strength_t h_t

    which is the mean over the hashes of the sum of what collides. It has no softmax, so that it
    grows with what is found. With ``counts`` it says how much that is, too: log(1 + sum_t
    strength_t) beside.

    >>> history = LongHistory(tf.constant([[[3.0], [1.0]]]), tf.ones([1, 1, 2], tf.bool), {})
    >>> strength = tf.constant([[[0.5, 1.0]]])
    >>> found = SearchResult(strength > 0.0, strength=strength)
    >>> unit = CollisionAttentionUnit()
    >>> unit(Target(tf.ones([1, 1, 1]), {}), history, found).attended.numpy().tolist()
    [[[2.5]]]

    Args:
        counts: Whether to give the strengths' sum.
    """

    has_mean = False

    def __init__(self, counts: bool = False, **kwargs: Any) -> None:
        """Remember the option."""
        super().__init__(autocast=False, **kwargs)
        self.counts = counts

    @classmethod
    def from_options(
        cls, options: Any, item_dim: int, time_dim: int, **kwargs: Any
    ) -> CollisionAttentionUnit:
        """Make the unit for ``collision_counts``."""
        return cls(options.collision_counts, **kwargs)

    def attended_dim(self, item_dim: int) -> int:
        """Return ``item_dim``, and one for the count."""
        return item_dim + int(self.counts)

    def call(
        self,
        target: Target,
        history: LongHistory,
        found: SearchResult,
        stage_one: bool = False,
    ) -> LongInterest:
        """Sum what the search found; for ``stage_one`` attend to the whole history too."""
        strength = tf.stop_gradient(search_strength(found))
        whole = [dot_weights(target, history, found).whole] if stage_one else []
        sums = dot_attention_sums(target.vector, history.vectors, whole, [strength])
        *searched, attended = sums
        if self.counts:
            count = tf.math.log1p(tf.reduce_sum(strength, axis=-1, keepdims=True))
            attended = tf.concat([attended, count], axis=-1)
        attended = tf.cast(attended, self.compute_dtype)
        return LongInterest(
            attended, None, tf.cast(searched[0], self.compute_dtype) if stage_one else None
        )

    def weights_over(self, target: Target, history: LongHistory, mask: tf.Tensor) -> tf.Tensor:
        """Return the softmax that is done without, of the dot product, as one head's weights."""
        weights = attention_weights(dot_scores(target.vector, history.vectors), mask)
        return weights[:, :, tf.newaxis, :]

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the unit."""
        return {**super().get_config(), "counts": self.counts}
