"""The exact search unit: what the positions found say about the target."""

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
    mean_weights,
    register_attention_unit,
)


@register_attention_unit("dot")
@register_block
class ExactSearchUnit(AttentionUnit):
    """Attend again, by the dot product, to the positions that a search kept.

        attended = sum_t softmax(r_t) h_t,    mean = sum_t h_t / (count + 1)    over the kept t

    Where the search was by the dot product too, its weights are taken: masking the history with
    the choice gives what gathering the kept positions would, without moving them. Both sums, and
    stage one's where it is asked for, are one batched product with the history.

    >>> from merlin_sim.models.blocks.search.general_search_unit import GeneralSearchUnit
    >>> vectors = tf.constant([[[5.0], [1.0], [2.0]]])
    >>> history = LongHistory(vectors, tf.constant([[[False, True, True]]]), {})
    >>> target = Target(tf.constant([[[1.0]]]), {})
    >>> interest = ExactSearchUnit()(target, history, GeneralSearchUnit(top_k=1)(target, history))
    >>> interest.attended.numpy().tolist(), interest.mean.numpy().tolist()
    ([[[2.0]]], [[[1.0]]])
    """

    def __init__(self, **kwargs: Any) -> None:
        """Make the unit, which has no option and no weight."""
        super().__init__(autocast=False, **kwargs)

    @classmethod
    def from_options(
        cls, options: Any, item_dim: int, time_dim: int, **kwargs: Any
    ) -> ExactSearchUnit:
        """Make the unit; no option concerns it."""
        return cls(**kwargs)

    def attended_dim(self, item_dim: int) -> int:
        """Return ``item_dim``: what is attended to are the items' vectors."""
        return item_dim

    def call(
        self,
        target: Target,
        history: LongHistory,
        found: SearchResult,
        stage_one: bool = False,
    ) -> LongInterest:
        """Attend to what the search found; for ``stage_one`` to the whole history too."""
        weights = dot_weights(target, history, found)
        attentions = [weights.kept, *([weights.whole] if stage_one else [])]
        rows = [mean_weights(target, found.selected)]
        sums = dot_attention_sums(target.vector, history.vectors, attentions, rows)
        attended, *searched, mean = [tf.cast(vector, self.compute_dtype) for vector in sums]
        return LongInterest(attended, mean, searched[0] if stage_one else None)

    def weights_over(self, target: Target, history: LongHistory, mask: tf.Tensor) -> tf.Tensor:
        """Return the one head's weights: [users, candidates, 1, long]."""
        weights = attention_weights(dot_scores(target.vector, history.vectors), mask)
        return weights[:, :, tf.newaxis, :]
