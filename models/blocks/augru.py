"""The second recurrence of DIEN: interest evolution, a GRU with an attentional update gate."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block

from .checks import check_positive


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class AUGRU(Block):
    """GRU whose update gate is scaled by attention (DIEN, equations 13 to 15).

        [r, u] = sigmoid(Dense([x, h])),    c = tanh(Dense([x, r h]))
        u' = (1 - a) u,                     h' = u' h + (1 - u') c

    as the published implementation has it: a position without attention keeps a plain GRU's gate,
    one with full attention replaces the state. Gate biases start at 1, candidate biases at 0. Both
    kernels are multiplied in parts, those of the inputs at once for all positions.

    >>> state = AUGRU(6)(tf.ones([2, 5, 4]), tf.ones([2, 5]) / 5)
    >>> state.shape
    TensorShape([2, 6])

    Args:
        units: Size of the state.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        """Check the options and make the layers."""
        super().__init__(**kwargs)
        self.units = check_positive("units", units)

    def build(self, input_shape: Any) -> None:
        """Create the weights for inputs of [batch, history, dim]."""
        rows = int(input_shape[-1]) + self.units
        self.gates_kernel = self.add_weight(
            "gates_kernel", [rows, 2 * self.units], initializer="glorot_uniform"
        )
        self.gates_bias = self.add_weight("gates_bias", [2 * self.units], initializer="ones")
        self.candidate_kernel = self.add_weight(
            "candidate_kernel", [rows, self.units], initializer="glorot_uniform"
        )
        self.candidate_bias = self.add_weight("candidate_bias", [self.units], initializer="zeros")
        super().build(input_shape)

    def call(self, inputs: tf.Tensor, attention: tf.Tensor) -> tf.Tensor:
        """Return the state after the last position.

        Args:
            inputs: [batch, history, dim]; the history's length is static.
            attention: [batch, history], the weight of each position.

        Returns:
            [batch, units].
        """
        dim = inputs.shape[-1]
        gates_kernel = tf.convert_to_tensor(self.gates_kernel)
        candidate_kernel = tf.convert_to_tensor(self.candidate_kernel)
        gates_x, gates_h = tf.split(gates_kernel, [dim, self.units], axis=0)
        candidate_x, candidate_h = tf.split(candidate_kernel, [dim, self.units], axis=0)
        gates = tf.unstack(tf.tensordot(inputs, gates_x, axes=1) + self.gates_bias, axis=1)
        candidates = tf.unstack(
            tf.tensordot(inputs, candidate_x, axes=1) + self.candidate_bias, axis=1
        )
        keep = 1.0 - tf.cast(attention, inputs.dtype)
        keep = tf.unstack(keep[:, :, tf.newaxis], axis=1)  # history x [batch, 1]
        state = tf.zeros([tf.shape(inputs)[0], self.units], inputs.dtype)
        for t in range(len(gates)):
            both = tf.sigmoid(gates[t] + tf.matmul(state, gates_h))  # [batch, 2 units]
            reset, update = tf.split(both, 2, axis=1)
            candidate = tf.tanh(candidates[t] + tf.matmul(reset * state, candidate_h))
            update = keep[t] * update
            state = update * state + (1.0 - update) * candidate  # [batch, units]
        return state

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """[batch, history, dim] -> [batch, units]."""
        return tf.TensorShape([input_shape[0], self.units])

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        return {**super().get_config(), "units": self.units}
