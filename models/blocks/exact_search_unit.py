"""The exact search unit: what the positions found say about the target."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from merlin.models.tf.core.base import Block

from .dot_attention import attention_sums
from .general_search_unit import SearchResult


class LongInterest(NamedTuple):
    """The user's interest in the target as the long history tells it; each [batch, dim]."""

    attended: tf.Tensor
    """Attention over the positions found."""

    mean: tf.Tensor
    """Their mean, sum / (count + 1)."""

    searched: tf.Tensor | None
    """Attention over the whole long history: what stage one is trained on. None when not asked."""


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class ExactSearchUnit(Block):
    """Attend again to the positions that the general search unit kept.

        attended = sum_t softmax(r_t) h_t,    mean = sum_t h_t / (count + 1)    over the kept t

    The weights are the search's: masking the history with the choice gives what gathering
    the kept positions would, without moving them. Both sums, and stage one's where it is asked
    for, are one batched product with the history.

    >>> from merlin_sim.models.blocks.general_search_unit import GeneralSearchUnit
    >>> search = GeneralSearchUnit(top_k=1)
    >>> history = tf.constant([[[5.0], [1.0], [2.0]]])
    >>> found = search(tf.constant([[1.0]]), history, tf.constant([[False, True, True]]))
    >>> interest = ExactSearchUnit()(tf.constant([[1.0]]), history, found)
    >>> interest.attended.numpy().tolist(), interest.mean.numpy().tolist()
    ([[2.0]], [[1.0]])
    """

    def __init__(self, **kwargs: Any) -> None:
        """Check the options and make the layers."""
        super().__init__(autocast=False, **kwargs)

    def call(
        self,
        target_item: tf.Tensor,
        long_history: tf.Tensor,
        found: SearchResult,
        stage_one: bool = False,
    ) -> LongInterest:
        """Attend to what the search found.

        Args:
            target_item: [batch, dim].
            long_history: [batch, long, dim].
            found: What the general search unit found in it for this target.
            stage_one: Whether to return the attention over the whole long history too.
        """
        kept = tf.cast(found.selected, tf.float32)  # [batch, long]
        mean_weights = kept / (tf.reduce_sum(kept, axis=1, keepdims=True) + 1.0)
        weights = [found.attention, *([found.long_attention] if stage_one else [])]
        sums = attention_sums(target_item, long_history, weights, [mean_weights])
        attended, *searched, mean = [tf.cast(vector, self.compute_dtype) for vector in sums]
        return LongInterest(attended, mean, searched[0] if stage_one else None)

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        config: dict[str, Any] = super().get_config()
        config.pop("autocast", None)
        return config
