"""The general search unit: which of a long history's positions a candidate is about."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..attention.dot_attention import attention_weights, dot_scores
from ..checks import check_positive
from ..serialization import register_block
from .search_and_attention import (
    DotWeights,
    LongHistory,
    SearchOptions,
    SearchResult,
    SearchUnit,
    Target,
    register_search_unit,
)
from .top_k_mask import top_k_mask


@register_search_unit("soft")
@register_block
class GeneralSearchUnit(SearchUnit):
    """Soft search (SIM, https://arxiv.org/abs/2006.05639, section 3.1).

        r_t = target . h_t,      weights = softmax(r) over the positions it may see
        selected = the top_k positions by weight, kept where the weight is above 0

    Among equal weights the older position is taken, as by ``tf.math.top_k``. Positions are marked
    where they stand, not gathered: the exact search unit masks the history instead. A search has no
    gradient: what is trained is the attention to what it found, and stage one's to the whole.

    >>> search = GeneralSearchUnit(top_k=1)
    >>> vectors = tf.constant([[[5.0], [1.0], [2.0]]])
    >>> history = LongHistory(vectors, tf.constant([[[False, True, True]]]), {})
    >>> search(Target(tf.constant([[[1.0]]]), {}), history).selected.numpy().tolist()
    [[[False, False, True]]]

    Args:
        top_k: How many positions to keep at most; a shorter history is kept whole.
    """

    def __init__(self, top_k: int = 50, **kwargs: Any) -> None:
        """Check the option."""
        super().__init__(autocast=False, **kwargs)
        self.top_k = check_positive("top_k", top_k)

    @classmethod
    def from_options(cls, options: SearchOptions, **kwargs: Any) -> GeneralSearchUnit:
        """Make the unit for ``top_k``."""
        return cls(options.top_k, **kwargs)

    def call(self, target: Target, history: LongHistory) -> SearchResult:
        """Search for each candidate; its weights go on to the attention."""
        # [users, candidates, long]
        scores = tf.stop_gradient(dot_scores(target.vector, history.vectors))
        whole = attention_weights(scores, history.mask)
        selected = top_k_mask(whole, self.top_k)
        return SearchResult(selected, DotWeights(rescaled(whole, selected), whole))

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the unit."""
        return {**super().get_config(), "top_k": self.top_k}


def rescaled(weights: tf.Tensor, selected: tf.Tensor) -> tf.Tensor:
    """Return the softmax over the positions selected, given that over more of them.

    A softmax over some of the positions is that over all of them, rescaled; the greatest weight has
    to be among those selected.

    Args:
        weights: [..., positions].
        selected: [..., positions], bool.
    """
    weights *= tf.cast(selected, weights.dtype)
    return tf.math.divide_no_nan(weights, tf.reduce_sum(weights, axis=-1, keepdims=True))
