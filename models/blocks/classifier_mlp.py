"""The network at the end of every model: from concatenated vectors to a logit."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block

from .checks import check_dims, check_rate
from .prelu import PReLU


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class ClassifierMLP(Block):
    """Dense + PReLU per hidden size, optional dropout, then one linear unit in float32.

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
        """Check the options and make the layers."""
        super().__init__(**kwargs)
        self.hidden_dims = check_dims("hidden_dims", hidden_dims)
        self.dropout_rate = check_rate("dropout_rate", dropout_rate)
        policy = self._dtype_policy
        self.dense = [
            tf.keras.layers.Dense(units, dtype=policy, name=f"dense_{place}")
            for place, units in enumerate(self.hidden_dims)
        ]
        self.prelu = [
            PReLU(dtype=policy, name=f"prelu_{place}") for place in range(len(self.hidden_dims))
        ]
        # In mixed precision the logit stays in float32: losses come from float32 logits.
        last = f"dense_{len(self.hidden_dims)}"
        self.dense.append(tf.keras.layers.Dense(1, dtype=self._variable_policy(), name=last))
        self.dropout = None if dropout_rate is None else tf.keras.layers.Dropout(dropout_rate)

    def _variable_policy(self) -> str:
        return str(self._dtype_policy.variable_dtype)

    def build(self, input_shape: Any) -> None:
        """Create the weights for inputs of [batch, dim]."""
        shape = tf.TensorShape([None, int(input_shape[-1])])
        for place, dense in enumerate(self.dense):
            dense.build(shape)
            shape = tf.TensorShape([None, dense.units])
            if place < len(self.prelu):
                self.prelu[place].build(shape)
        super().build(input_shape)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the logits.

        Args:
            inputs: [batch, dim].
            training: Whether dropout applies.

        Returns:
            [batch, 1], float32.
        """
        hidden = inputs
        for place, prelu in enumerate(self.prelu):
            hidden = prelu(self.dense[place](hidden))
        if self.dropout is not None:
            hidden = self.dropout(hidden, training=training)
        return self.dense[-1](hidden)

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """[batch, dim] -> [batch, 1]."""
        return tf.TensorShape([input_shape[0], 1])

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        return {
            **super().get_config(),
            "hidden_dims": list(self.hidden_dims),
            "dropout_rate": self.dropout_rate,
        }
