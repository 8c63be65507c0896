"""TWIN's search: the attention that follows, over the whole long history."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..attention.dot_attention import attention_weights
from ..attention.target_attention import TargetAttention
from ..checks import check_positive
from ..serialization import part_config, part_from, register_block
from .search_and_attention import LongHistory, SearchResult, SearchUnit, Target
from .top_k_mask import top_k_mask


@register_block
class TargetSearchUnit(SearchUnit):
    """Search by the attention's own scores (TWIN, https://arxiv.org/abs/2302.02352, section 4).

        selected = the top_k positions of greatest softmax(score_i), on the mean over all heads

    so that ``top_k`` distinct positions are kept, whichever heads look at them. Scores are handed
    on to the attention unit, which has the same :class:`TargetAttention`: search and attention
    have the same parameters, and the scores are computed once. The choice has no gradient.

    Args:
        attention: The attention that search and attention unit share.
        top_k: How many positions to keep at most.
    """

    def __init__(
        self, attention: TargetAttention | dict[str, Any], top_k: int = 100, **kwargs: Any
    ) -> None:
        """Check the option."""
        super().__init__(autocast=False, **kwargs)
        self.attention: TargetAttention = part_from(attention)
        self.top_k = check_positive("top_k", top_k)

    def build(self, input_shape: Any) -> None:
        """Create the attention's kernels for candidates of [users, candidates, dim]."""
        shape = input_shape.vector if isinstance(input_shape, Target) else input_shape
        self.attention.build(tf.TensorShape(shape))
        super().build(input_shape)

    def call(self, target: Target, history: LongHistory) -> SearchResult:
        """Search for each candidate in what it may see of its user's history."""
        scores = self.attention.scores(target.vector, history.vectors, history.time_vectors)
        mask = history.mask[:, :, tf.newaxis, :]
        weights = tf.reduce_mean(attention_weights(tf.stop_gradient(scores), mask), axis=2)
        return SearchResult(top_k_mask(weights, self.top_k), scores=scores)

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the unit."""
        attention = part_config(self.attention)
        return {**super().get_config(), "attention": attention, "top_k": self.top_k}
