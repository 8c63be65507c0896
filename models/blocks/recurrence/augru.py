"""The second recurrence of DIEN: interest evolution, a GRU with an attentional update gate."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block

from ..checks import check_positive
from ..heads.hidden_layers import affine
from ..serialization import register_block


@register_block
class AUGRU(Block):
    """GRU whose update gate is scaled by attention (DIEN, the interest evolving layer).

        [r, u] = sigmoid(Dense([x, h])),    c = tanh(Dense([x, r h]))
        u' = (1 - a) u,                     h' = u' h + (1 - u') c

    as the published implementation has it: a position without attention keeps a plain GRU's gate,
    one with full attention replaces the state. Gate biases start at 1, candidate biases at 0. Each
    gate has its own product, with which its sigmoid is fused: cutting one wide product into gates
    would cost more than it saves.

    >>> state = AUGRU(6)([tf.ones([2, 4])] * 5, tf.ones([2, 5]) / 5)
    >>> state.shape
    TensorShape([2, 6])

    Args:
        units: Size of the state.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        """Check the option."""
        super().__init__(**kwargs)
        self.units = check_positive("units", units)

    def build(self, input_shape: Any) -> None:
        """Create the weights for positions of [batch, dim] each."""
        shape = input_shape[0] if isinstance(input_shape, list) else input_shape
        rows = int(shape[-1]) + self.units
        self.gates_kernel = self.add_weight(
            "gates_kernel", [rows, 2 * self.units], initializer="glorot_uniform"
        )
        self.gates_bias = self.add_weight("gates_bias", [2 * self.units], initializer="ones")
        self.candidate_kernel = self.add_weight(
            "candidate_kernel", [rows, self.units], initializer="glorot_uniform"
        )
        self.candidate_bias = self.add_weight("candidate_bias", [self.units], initializer="zeros")
        super().build(input_shape)

    def call(self, inputs: list[tf.Tensor], attention: tf.Tensor) -> tf.Tensor:
        """Return the state after the last position.

        Args:
            inputs: One [batch, dim] for each position, oldest first.
            attention: [batch, history], the weight of each position.

        Returns:
            [batch, units].
        """
        dim = inputs[0].shape[-1]
        reset_kernel, update_kernel = tf.split(tf.convert_to_tensor(self.gates_kernel), 2, axis=1)
        reset_bias, update_bias = tf.split(tf.convert_to_tensor(self.gates_bias), 2, axis=0)
        candidate_kernel = tf.convert_to_tensor(self.candidate_kernel)
        candidate_bias = tf.convert_to_tensor(self.candidate_bias)
        keep = tf.split(1.0 - tf.cast(attention, inputs[0].dtype), len(inputs), axis=1)
        # The state before the first position is 0: what multiplies it is left out.
        sizes = [dim, self.units]
        update_x, candidate_x = (tf.split(k, sizes)[0] for k in (update_kernel, candidate_kernel))
        update = tf.sigmoid(affine(inputs[0], update_x, update_bias))
        candidate = tf.tanh(affine(inputs[0], candidate_x, candidate_bias))
        state = candidate - (keep[0] * update) * candidate  # [batch, units]
        for t in range(1, len(inputs)):
            pair = tf.concat([inputs[t], state], axis=1)  # [batch, dim + units]
            reset = tf.sigmoid(affine(pair, reset_kernel, reset_bias))
            update = tf.sigmoid(affine(pair, update_kernel, update_bias))
            pair = tf.concat([inputs[t], reset * state], axis=1)
            candidate = tf.tanh(affine(pair, candidate_kernel, candidate_bias))
            state = candidate + (keep[t] * update) * (state - candidate)
        return state

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        return {**super().get_config(), "units": self.units}
