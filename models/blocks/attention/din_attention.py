"""DIN's attention: a history read through each candidate."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block

from ..checks import check_choice
from ..serialization import register_block
from .activation_unit import ActivationUnit
from .attentions import ATTENTIONS
from .dot_attention import attention_weights, dot_attention_sums, dot_scores


@register_block
class DINAttention(Block):
    """Weigh each position of a history by its score against a candidate, and sum.

        interest = sum_t softmax(score(candidate, h_t)) h_t     over the positions t it may see

    The score is the dot product, or an :class:`ActivationUnit` (DIN,
    https://arxiv.org/abs/1706.06978, equation 3; the softmax is the published implementation's).
    An empty history gives zeros.

    The products are computed in float32 under every policy: they decide a search, and there is
    no kernel in them that would gain from float16.

    >>> attention = DINAttention()
    >>> history = tf.constant([[[9.0, 9.0], [1.0, 0.0], [0.0, 1.0]]])
    >>> mask = tf.constant([[[False, True, True]]])
    >>> attention(tf.zeros([1, 1, 2]), history, mask).numpy().tolist()
    [[[0.5, 0.5]]]

    Args:
        attention: ``"dot"`` or ``"activation_unit"``.
    """

    def __init__(self, attention: str = "dot", **kwargs: Any) -> None:
        """Check the options and make the layers."""
        super().__init__(autocast=False, **kwargs)
        self.attention = check_choice("attention", attention, ATTENTIONS)
        self.activation_unit = None
        if attention == "activation_unit":
            self.activation_unit = ActivationUnit(dtype=self._dtype_policy, name="activation_unit")

    def build(self, input_shape: Any) -> None:
        """Create the activation unit's weights for candidates of [users, candidates, dim]."""
        if self.activation_unit is not None:
            self.activation_unit.build(input_shape)
        super().build(input_shape)

    def scores(self, candidates: tf.Tensor, history: tf.Tensor) -> tf.Tensor:
        """Return the scores before the softmax: [users, candidates, history], float32."""
        if self.activation_unit is not None:
            return tf.cast(self.activation_unit(candidates, history), tf.float32)
        return dot_scores(candidates, history)

    def call(self, candidates: tf.Tensor, history: tf.Tensor, history_mask: tf.Tensor) -> tf.Tensor:
        """Return the user's interest in each candidate.

        Args:
            candidates: [users, candidates, dim].
            history: [users, history, dim].
            history_mask: [users, candidates, history], bool; True where a position is real and the
                candidate may see it. One row for all candidates of a user will do.

        Returns:
            [users, candidates, dim].
        """
        scores = self.scores(candidates, history)  # [users, candidates, history]
        weights = attention_weights(scores, history_mask)
        if self.activation_unit is None:
            (interest,) = dot_attention_sums(candidates, history, [weights], [])
        else:
            interest = tf.matmul(weights, tf.cast(history, tf.float32))
        return tf.cast(interest, self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """[users, candidates, dim] -> [users, candidates, dim]."""
        return tf.TensorShape(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        config = super().get_config()
        config.pop("autocast", None)
        return {**config, "attention": self.attention}
