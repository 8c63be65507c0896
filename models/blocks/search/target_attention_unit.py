"""The attention of ETA and TWIN to what a search found."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..attention.dot_attention import attention_weights, dot_attention_sums
from ..attention.target_attention import TargetAttention
from ..serialization import part_config, part_from, register_block
from .search_and_attention import (
    AttentionUnit,
    LongHistory,
    LongInterest,
    SearchResult,
    Target,
    dot_weights,
)


@register_block
class TargetAttentionUnit(AttentionUnit):
    """Attend with :class:`TargetAttention` to the positions that a search kept.

    Positions are marked, not gathered: the softmax is over those kept. Where the search scored by
    the same attention, as TWIN's does, its scores are taken.

    Args:
        attention: What attends; a search may have the same.
    """

    has_mean = False

    def __init__(self, attention: TargetAttention | dict[str, Any], **kwargs: Any) -> None:
        """Take the attention."""
        super().__init__(autocast=False, **kwargs)
        self.attention: TargetAttention = part_from(attention)
        self.reads_times = self.attention.time_dim > 0

    def attended_dim(self, item_dim: int) -> int:
        """Return the length of all heads' vectors."""
        return self.attention.attended_dim

    def build(self, input_shape: Any) -> None:
        """Create the attention's kernels for candidates of [users, candidates, dim]."""
        shape = input_shape.vector if isinstance(input_shape, Target) else input_shape
        self.attention.build(tf.TensorShape(shape))
        super().build(input_shape)

    def call(
        self,
        target: Target,
        history: LongHistory,
        found: SearchResult,
        stage_one: bool = False,
    ) -> LongInterest:
        """Attend to what the search found; for ``stage_one`` to the whole history too."""
        scores = found.scores
        if scores is None:
            scores = self._scores(target, history)
        weights = attention_weights(scores, found.selected[:, :, tf.newaxis, :])
        attended = tf.cast(self.attention.attend(weights, history.vectors), self.compute_dtype)
        if not stage_one:
            return LongInterest(attended, None, None)
        whole = dot_weights(target, history, found).whole
        (searched,) = dot_attention_sums(target.vector, history.vectors, [whole], [])
        return LongInterest(attended, None, tf.cast(searched, self.compute_dtype))

    def _scores(self, target: Target, history: LongHistory) -> tf.Tensor:
        return self.attention.scores(target.vector, history.vectors, history.time_vectors)

    def weights_over(self, target: Target, history: LongHistory, mask: tf.Tensor) -> tf.Tensor:
        """Return each head's weights over ``mask``: [users, candidates, heads, long], float32."""
        return attention_weights(self._scores(target, history), mask[:, :, tf.newaxis, :])

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the unit."""
        return {**super().get_config(), "attention": part_config(self.attention)}
