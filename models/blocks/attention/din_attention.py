"""DIN's attention: a history read through the target."""

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
    """Weigh each position of a history by its score against the target, and sum.

        interest = sum_t softmax(score(target, h_t)) h_t        over the real positions t

    The score is the dot product, or an :class:`ActivationUnit` (DIN,
    https://arxiv.org/abs/1706.06978, equation 3; the softmax is the published implementation's).
    An empty history gives zeros.

    The products are computed in float32 under every policy: they decide a search, and there is
    no kernel in them that would gain from float16.

    >>> attention = DINAttention()
    >>> history = tf.constant([[[9.0, 9.0], [1.0, 0.0], [0.0, 1.0]]])
    >>> mask = tf.constant([[False, True, True]])
    >>> attention(tf.constant([[0.0, 0.0]]), history, mask).numpy().tolist()
    [[0.5, 0.5]]

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
        """Create the activation unit's weights for targets of [batch, dim]."""
        if self.activation_unit is not None:
            self.activation_unit.build(input_shape)
        super().build(input_shape)

    def scores(self, target_item: tf.Tensor, history: tf.Tensor) -> tf.Tensor:
        """Return the scores before the softmax: [batch, history], float32."""
        if self.activation_unit is not None:
            return tf.cast(self.activation_unit(target_item, history), tf.float32)
        return dot_scores(target_item, history)

    def call(
        self, target_item: tf.Tensor, history: tf.Tensor, history_mask: tf.Tensor
    ) -> tf.Tensor:
        """Return the user's interest in the target.

        Args:
            target_item: [batch, dim].
            history: [batch, history, dim].
            history_mask: [batch, history], bool; True where a position is real.

        Returns:
            [batch, dim].
        """
        scores = self.scores(target_item, history)  # [batch, history]
        weights = attention_weights(scores, history_mask)
        if self.activation_unit is None:
            (interest,) = dot_attention_sums(target_item, history, [weights], [])
        else:
            products = tf.matmul(weights[:, tf.newaxis, :], tf.cast(history, tf.float32))
            interest = tf.squeeze(products, axis=1)
        return tf.cast(interest, self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """[batch, dim] -> [batch, dim]."""
        return tf.TensorShape(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        config = super().get_config()
        config.pop("autocast", None)
        return {**config, "attention": self.attention}
