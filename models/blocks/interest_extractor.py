"""The first recurrence of DIEN: a GRU that extracts the interest at each position."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block

from .checks import check_positive


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class InterestExtractor(Block):
    """Keras's own GRU (``reset_after``), with its weights, unrolled over a short history.

        [z, r, n] = x W + b_1,    [z', r', n'] = h U + b_2
        z = sigmoid(z + z'),  r = sigmoid(r + r'),  c = tanh(n + r n')
        h' = z h + (1 - z) c

    Padded positions run through as zeros. The products with the inputs are one matrix product for
    all positions.

    >>> states = InterestExtractor(6)(tf.ones([2, 5, 4]))
    >>> states.shape
    TensorShape([2, 5, 6])

    Args:
        units: Size of the state.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        """Check the options and make the layers."""
        super().__init__(**kwargs)
        self.units = check_positive("units", units)

    def build(self, input_shape: Any) -> None:
        """Create the weights for inputs of [batch, history, dim]."""
        dim = int(input_shape[-1])
        self.kernel = self.add_weight("kernel", [dim, 3 * self.units], initializer="glorot_uniform")
        self.recurrent_kernel = self.add_weight(
            "recurrent_kernel", [self.units, 3 * self.units], initializer="orthogonal"
        )
        self.bias = self.add_weight("bias", [2, 3 * self.units], initializer="zeros")
        super().build(input_shape)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the state after each position.

        Args:
            inputs: [batch, history, dim]; the history's length is static.

        Returns:
            [batch, history, units].
        """
        input_bias, recurrent_bias = tf.unstack(tf.convert_to_tensor(self.bias), axis=0)
        recurrent_kernel = tf.convert_to_tensor(self.recurrent_kernel)
        projected = tf.tensordot(inputs, self.kernel, axes=1) + input_bias
        state = tf.zeros([tf.shape(inputs)[0], self.units], projected.dtype)
        states = []
        for position in tf.unstack(projected, axis=1):  # [batch, 3 units]
            update_x, reset_x, candidate_x = tf.split(position, 3, axis=1)
            recurrent = tf.matmul(state, recurrent_kernel) + recurrent_bias
            update_h, reset_h, candidate_h = tf.split(recurrent, 3, axis=1)
            update = tf.sigmoid(update_x + update_h)
            reset = tf.sigmoid(reset_x + reset_h)
            candidate = tf.tanh(candidate_x + reset * candidate_h)
            state = update * state + (1.0 - update) * candidate  # [batch, units]
            states.append(state)
        return tf.stack(states, axis=1)

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """[batch, history, dim] -> [batch, history, units]."""
        return tf.TensorShape([input_shape[0], input_shape[1], self.units])

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        return {**super().get_config(), "units": self.units}
