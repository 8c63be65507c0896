"""The activation unit: how much a position of the history matters to the target."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block

from ..checks import check_dims
from ..heads.hidden_layers import affine
from ..serialization import register_block


@register_block
class ActivationUnit(Block):
    """Score each position by a small network over target and position.

        score(t) = MLP([e, h_t, e - h_t, e * h_t])

    with sigmoid hidden layers and one linear unit at the end. DIN (https://arxiv.org/abs/1706.06978,
    section 4.3) applies it to item vectors, DIEN (https://arxiv.org/abs/1809.03672, the attention
    of the interest evolving layer) to the states of its first GRU.

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
        # Keras casts a layer's first input only.
        history = tf.cast(history, self.compute_dtype)
        length, dim = history.shape[1:]
        of_item, of_history, of_product = self.kernels()
        products = tf.reshape(target_item[:, tf.newaxis, :] * history, [-1, dim])
        hidden = affine(products, of_product, self.dense[0].bias)
        hidden += tf.matmul(tf.reshape(history, [-1, dim]), of_history)
        hidden = tf.reshape(hidden, [-1, length, hidden.shape[-1]])  # [batch, history, units]
        hidden = tf.sigmoid(hidden + tf.matmul(target_item, of_item)[:, tf.newaxis, :])
        scores = self.after_first(tf.reshape(hidden, [-1, hidden.shape[-1]]))
        return tf.reshape(scores, [-1, length])

    def score_each(self, target_item: tf.Tensor, positions: list[tf.Tensor]) -> tf.Tensor:
        """Return the scores of positions that stand one by one, as a recurrence makes them.

        One position after the other stays in the processor's cache.

        Args:
            target_item: [batch, dim].
            positions: Each [batch, dim].

        Returns:
            [batch, positions].
        """
        of_item, of_history, of_product = self.kernels()
        item = tf.matmul(target_item, of_item)  # [batch, units]
        bias = tf.convert_to_tensor(self.dense[0].bias)
        scores = []
        for position in positions:
            hidden = affine(target_item * position, of_product, bias)
            hidden = tf.sigmoid(hidden + tf.matmul(position, of_history) + item)
            scores.append(self.after_first(hidden))  # [batch, 1]
        return tf.concat(scores, axis=1)

    def kernels(self) -> list[tf.Tensor]:
        """Return the first kernel as the item's, the history's and their product's part."""
        kernel = tf.cast(tf.convert_to_tensor(self.dense[0].kernel), self.compute_dtype)
        item, history, difference, product = tf.split(kernel, 4, axis=0)
        return [item + difference, history - difference, product]

    def after_first(self, hidden: tf.Tensor) -> tf.Tensor:
        """Run the layers after the first: [rows, units] to [rows, 1]."""
        for dense in self.dense[1:]:
            hidden = dense(hidden)
        return hidden

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """[batch, dim] -> [batch, history]; the history's length is not known from the target."""
        return tf.TensorShape([input_shape[0], None])

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        return {**super().get_config(), "hidden_dims": list(self.hidden_dims)}
