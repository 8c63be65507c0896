"""The activation unit: how much a position of the history matters to the target."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block

from .checks import check_dims


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class ActivationUnit(Block):
    """Score each position by a small network over target and position.

        score(t) = MLP([e, h_t, e - h_t, e * h_t])

    with sigmoid hidden layers and one linear unit at the end. DIN (https://arxiv.org/abs/1706.06978,
    section 4.3) applies it to item vectors, DIEN (https://arxiv.org/abs/1809.03672, equation 7)
    to the states of its first GRU.

    The first kernel is multiplied in parts, one for each of the four inputs, so that the parts
    that concern only the target are computed once per sample and nothing is concatenated.

    >>> scores = ActivationUnit()(tf.ones([2, 8]), tf.ones([2, 5, 8]))
    >>> scores.shape
    TensorShape([2, 5])

    Args:
        hidden_dims: Sizes of the hidden layers.
    """

    def __init__(self, hidden_dims: tuple[int, ...] = (80, 40), **kwargs: Any) -> None:
        """Check the options and make the layers."""
        super().__init__(**kwargs)
        self.hidden_dims = check_dims("hidden_dims", hidden_dims, at_least=1)
        policy = self._dtype_policy
        self.dense = [
            tf.keras.layers.Dense(units, activation="sigmoid", dtype=policy, name=f"dense_{place}")
            for place, units in enumerate(self.hidden_dims)
        ]
        last = f"dense_{len(self.hidden_dims)}"
        self.dense.append(tf.keras.layers.Dense(1, dtype=policy, name=last))

    def build(self, input_shape: Any) -> None:
        """Create the weights for targets of [batch, dim]."""
        width = 4 * int(input_shape[-1])
        for dense in self.dense:
            dense.build(tf.TensorShape([None, width]))
            width = dense.units
        super().build(input_shape)

    def call(self, target_item: tf.Tensor, history: tf.Tensor) -> tf.Tensor:
        """Return the scores.

        Args:
            target_item: [batch, dim].
            history: [batch, history, dim].

        Returns:
            [batch, history].
        """
        return self.scores(target_item[:, tf.newaxis, :], history)

    def scores(self, target_item: tf.Tensor, history: tf.Tensor) -> tf.Tensor:
        """Return the scores of positions whose target has been broadcast against them.

        Args:
            target_item: [..., dim], of the history's rank.
            history: [..., dim].

        Returns:
            [...].
        """
        # Keras casts a layer's first input only.
        target_item = tf.cast(target_item, self.compute_dtype)
        history = tf.cast(history, self.compute_dtype)
        first, *rest = self.dense
        kernel = tf.convert_to_tensor(first.kernel)
        item_part, history_part, difference_part, product_part = tf.split(kernel, 4, axis=0)
        hidden = (
            tf.tensordot(history, history_part - difference_part, axes=1)
            + tf.tensordot(target_item * history, product_part, axes=1)
            + (tf.tensordot(target_item, item_part + difference_part, axes=1) + first.bias)
        )
        hidden = tf.sigmoid(hidden)  # [..., units]
        for dense in rest:
            hidden = dense(hidden)
        return tf.squeeze(hidden, axis=-1)

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """[batch, dim] -> [batch, history]; the history's length is not known from the target."""
        return tf.TensorShape([input_shape[0], None])

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        return {**super().get_config(), "hidden_dims": list(self.hidden_dims)}
