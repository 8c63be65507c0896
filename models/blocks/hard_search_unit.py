"""The other general search unit: by category instead of by score."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block

from .checks import check_positive
from .dot_attention import attention_weights, dot_scores
from .general_search_unit import SearchResult


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class HardSearchUnit(Block):
    """Hard search (SIM, https://arxiv.org/abs/2006.05639, equation 2).

        selected = the newest top_k real positions whose category is the target's

    The scores, for the attention that follows, are those of the soft search.

    >>> search = HardSearchUnit(top_k=1)
    >>> history, mask = tf.ones([1, 4, 2]), tf.constant([[False, True, True, True]])
    >>> categories = tf.constant([[7, 7, 7, 3]])
    >>> found = search(tf.ones([1, 2]), history, mask, tf.constant([7]), categories)
    >>> found.selected.numpy().tolist()
    [[False, False, True, False]]

    Args:
        top_k: How many positions to keep at most.
    """

    def __init__(self, top_k: int = 50, **kwargs: Any) -> None:
        """Check the options."""
        super().__init__(autocast=False, **kwargs)
        self.top_k = check_positive("top_k", top_k)

    def call(
        self,
        target_item: tf.Tensor,
        long_history: tf.Tensor,
        long_mask: tf.Tensor,
        target_category: tf.Tensor,
        long_categories: tf.Tensor,
    ) -> SearchResult:
        """Search a long history for the target's category.

        Args:
            target_item: [batch, dim].
            long_history: [batch, long, dim].
            long_mask: [batch, long], bool; True where a position is real.
            target_category: [batch], ids.
            long_categories: [batch, long], ids.
        """
        same = long_mask & (long_categories == target_category[:, tf.newaxis])
        # Counted from the newest, which is the last: 1 at the newest match, 2 at the one before.
        rank = tf.cumsum(tf.cast(same, tf.int32), axis=1, reverse=True)
        scores = tf.stop_gradient(dot_scores(target_item, long_history))
        selected = same & (rank <= self.top_k)
        attention, long_attention = (attention_weights(scores, m) for m in (selected, long_mask))
        return SearchResult(selected, attention, long_mask, long_attention)

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        config = super().get_config()
        config.pop("autocast", None)
        return {**config, "top_k": self.top_k}
