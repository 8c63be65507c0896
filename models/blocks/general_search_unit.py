"""The general search unit: which of a long history's positions the target is about."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from merlin.models.tf.core.base import Block

from .checks import check_positive
from .dot_attention import attention_weights, dot_scores
from .top_k_mask import top_k_mask


class SearchResult(NamedTuple):
    """What a search found in a long history."""

    selected: tf.Tensor
    """The positions kept: [batch, long], bool; at most top_k a row, all of them real."""

    attention: tf.Tensor
    """Softmax, over the positions kept, of the products of target and positions, 0 elsewhere:
    [batch, long], float32."""

    long_mask: tf.Tensor
    """The positions searched: [batch, long], bool."""

    long_attention: tf.Tensor
    """The same softmax over all positions searched."""


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class GeneralSearchUnit(Block):
    """Soft search (SIM, https://arxiv.org/abs/2006.05639, section 3.1).

        r_t = target . h_t,      weights = softmax(r) over the real positions
        selected = the top_k positions by weight, kept where the weight is above 0

    Among equal weights the older position is taken, as by ``tf.math.top_k``. Positions are marked
    where they stand, not gathered: the exact search unit masks the history instead. A search has no
    gradient: what is trained is the attention to what it found, and stage one's to the whole.

    >>> search = GeneralSearchUnit(top_k=1)
    >>> history = tf.constant([[[5.0], [1.0], [2.0]]])
    >>> found = search(tf.constant([[1.0]]), history, tf.constant([[False, True, True]]))
    >>> found.selected.numpy().tolist()
    [[False, False, True]]

    Args:
        top_k: How many positions to keep at most; a shorter history is kept whole.
    """

    def __init__(self, top_k: int = 50, **kwargs: Any) -> None:
        """Check the options and make the layers."""
        super().__init__(autocast=False, **kwargs)
        self.top_k = check_positive("top_k", top_k)

    def call(
        self, target_item: tf.Tensor, long_history: tf.Tensor, long_mask: tf.Tensor
    ) -> SearchResult:
        """Search a long history for the target.

        Args:
            target_item: [batch, dim].
            long_history: [batch, long, dim].
            long_mask: [batch, long], bool; True where a position is real.
        """
        scores = tf.stop_gradient(dot_scores(target_item, long_history))  # [batch, long]
        weights = attention_weights(scores, long_mask)
        selected = top_k_mask(weights, self.top_k)
        return SearchResult(selected, rescaled(weights, selected), long_mask, weights)

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        config = super().get_config()
        config.pop("autocast", None)
        return {**config, "top_k": self.top_k}


def rescaled(weights: tf.Tensor, selected: tf.Tensor) -> tf.Tensor:
    """Return the softmax over the positions selected, given that over more of them.

    A softmax over some of the positions is that over all of them, rescaled; the greatest weight has
    to be among those selected.

    Args:
        weights: [batch, positions].
        selected: [batch, positions], bool.
    """
    weights *= tf.cast(selected, weights.dtype)
    return tf.math.divide_no_nan(weights, tf.reduce_sum(weights, axis=1, keepdims=True))
