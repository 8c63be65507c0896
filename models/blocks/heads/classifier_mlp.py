"""A network from concatenated vectors to a logit."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block

from ..serialization import register_block
from .hidden_layers import HiddenLayers


@register_block
class ClassifierMLP(Block):
    """Hidden layers with PReLU, optional dropout, then one linear unit in float32.

    >>> logits = ClassifierMLP((200, 80))(tf.ones([2, 16]))
    >>> logits.shape
    TensorShape([2, 1])

    Args:
        hidden_dims: Sizes of the hidden layers.
        dropout_rate: Share of the last hidden layer dropped in training; None for off.
    """

    def __init__(
        self,
        hidden_dims: tuple[int, ...] = (200, 80),
        dropout_rate: float | None = None,
        **kwargs: Any,
    ) -> None:
        """Make the layers; the hidden ones check the options."""
        super().__init__(**kwargs)
        policy = self._dtype_policy
        self.hidden = HiddenLayers(hidden_dims, dropout_rate, dtype=policy, name="hidden")
        # In mixed precision the logit stays in float32: losses come from float32 logits.
        self.logit = tf.keras.layers.Dense(1, dtype=str(policy.variable_dtype), name="logit")

    def build(self, input_shape: Any) -> None:
        """Create the weights for inputs of [batch, dim]."""
        self.hidden.build(input_shape)
        self.logit.build(tf.TensorShape([None, self.hidden.output_dim(int(input_shape[-1]))]))
        super().build(input_shape)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the logits.

        Args:
            inputs: [batch, dim].
            training: Whether dropout applies.

        Returns:
            [batch, 1], float32.
        """
        return self.logit(self.hidden(inputs, training=training))

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """[batch, dim] -> [batch, 1]."""
        return tf.TensorShape([input_shape[0], 1])

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        return {
            **super().get_config(),
            "hidden_dims": list(self.hidden.hidden_dims),
            "dropout_rate": self.hidden.dropout_rate,
        }
