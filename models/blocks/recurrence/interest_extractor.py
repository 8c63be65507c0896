"""The first recurrence of DIEN: a GRU that extracts the interest at each position."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block

from ..checks import check_positive
from ..heads.hidden_layers import affine
from ..serialization import register_block


@register_block
class InterestExtractor(Block):
    """Keras's own GRU (``reset_after``), with its weights, unrolled over a short history.

        z = sigmoid(x W_z + b_z + h U_z + b'_z)
        r = sigmoid(x W_r + b_r + h U_r + b'_r)
        c = tanh(x W_c + b_c + r (h U_c + b'_c))
        h' = z h + (1 - z) c

    Padded positions run through as zeros. Each gate has its own product, with which its sigmoid is
    fused: cutting one wide product into gates would cost more than it saves, forward and, above
    all, backward.

    >>> states = InterestExtractor(6)([tf.ones([2, 4])] * 5)
    >>> len(states), states[-1].shape
    (5, TensorShape([2, 6]))

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
        width = 3 * self.units
        self.kernel = self.add_weight("kernel", [int(shape[-1]), width])
        self.recurrent_kernel = self.add_weight(
            "recurrent_kernel", [self.units, width], initializer="orthogonal"
        )
        self.bias = self.add_weight("bias", [2, width], initializer="zeros")
        super().build(input_shape)

    def call(self, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Return the state after each position.

        Args:
            inputs: One [batch, dim] for each position, oldest first.

        Returns:
            One [batch, units] for each position.
        """
        kernels = tf.split(tf.convert_to_tensor(self.kernel), 3, axis=1)
        recurrent_kernels = tf.split(tf.convert_to_tensor(self.recurrent_kernel), 3, axis=1)
        bias, recurrent_bias = tf.unstack(tf.convert_to_tensor(self.bias), axis=0)
        update_bias, reset_bias, _ = tf.split(bias + recurrent_bias, 3, axis=0)
        candidate_bias = tf.split(bias, 3, axis=0)[2]
        recurrent_candidate_bias = tf.split(recurrent_bias, 3, axis=0)[2]
        update_kernel, reset_kernel = (
            tf.concat([kernels[gate], recurrent_kernels[gate]], axis=0) for gate in (0, 1)
        )  # [dim + units, units]
        # The state before the first position is 0: what multiplies it is left out.
        update = tf.sigmoid(affine(inputs[0], kernels[0], update_bias))
        reset = tf.sigmoid(affine(inputs[0], kernels[1], reset_bias))
        candidate = affine(inputs[0], kernels[2], candidate_bias)
        candidate = tf.tanh(candidate + reset * recurrent_candidate_bias)
        state = candidate - update * candidate  # [batch, units]
        states = [state]
        for position in inputs[1:]:
            pair = tf.concat([position, state], axis=1)  # [batch, dim + units]
            update = tf.sigmoid(affine(pair, update_kernel, update_bias))
            reset = tf.sigmoid(affine(pair, reset_kernel, reset_bias))
            recurrent = affine(state, recurrent_kernels[2], recurrent_candidate_bias)
            candidate = affine(position, kernels[2], candidate_bias)
            candidate = tf.tanh(candidate + reset * recurrent)
            state = candidate + update * (state - candidate)
            states.append(state)
        return states

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        return {**super().get_config(), "units": self.units}
