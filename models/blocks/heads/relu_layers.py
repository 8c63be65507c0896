"""The networks of DLRM: layers of ReLU, their inputs padded for tensor cores."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block

from ..checks import check_dims
from ..serialization import register_block
from .hidden_layers import affine

TENSOR_CORE = 8
"""What the sides of a matrix are multiples of where tensor cores multiply it at full speed."""


@register_block
class ReLULayers(Block):
    """Dense + ReLU for each size.

    Kernels start normal after Glorot, biases normal with variance 1 / units, as published. The
    inputs are padded with zeros to a multiple of 8, as is the first kernel while it multiplies:
    the variable has a row for each input and no more.

    >>> ReLULayers((512, 256, 128))(tf.ones([2, 13])).shape
    TensorShape([2, 128])

    Args:
        dims: Sizes of the layers; none gives what came in.
    """

    def __init__(self, dims: tuple[int, ...] = (512, 256, 128), **kwargs: Any) -> None:
        """Check the sizes and make the layers."""
        super().__init__(**kwargs)
        self.dims = check_dims("dims", dims)
        self.dense = [
            published_dense(units, "relu", dtype=self._dtype_policy, name=f"dense_{place}")
            for place, units in enumerate(self.dims)
        ]

    def build(self, input_shape: Any) -> None:
        """Create the weights for inputs of [batch, dim]."""
        dim = int(input_shape[-1])
        for dense in self.dense:
            dense.build(tf.TensorShape([None, dim]))
            dim = dense.units
        super().build(input_shape)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the last layer.

        Args:
            inputs: [batch, dim].

        Returns:
            [batch, last of dims].
        """
        if not self.dense:
            return inputs
        first, others = self.dense[0], self.dense[1:]
        lacking = -int(inputs.shape[-1]) % TENSOR_CORE
        kernel = tf.pad(first.kernel, [[0, lacking], [0, 0]])
        hidden = tf.nn.relu(affine(tf.pad(inputs, [[0, 0], [0, lacking]]), kernel, first.bias))
        for dense in others:
            hidden = dense(hidden)
        return hidden

    def output_dim(self, input_dim: int) -> int:
        """Return the size of what comes out for inputs of this size."""
        return self.dims[-1] if self.dims else input_dim

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """[batch, dim] -> [batch, last of dims]."""
        return tf.TensorShape([input_shape[0], self.output_dim(input_shape[-1])])

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        return {**super().get_config(), "dims": list(self.dims)}


def published_dense(units: int, activation: str | None, **kwargs: Any) -> tf.keras.layers.Dense:
    """Make a layer that starts as DLRM's do."""
    return tf.keras.layers.Dense(
        units,
        activation=activation,
        kernel_initializer="glorot_normal",
        bias_initializer=tf.keras.initializers.RandomNormal(stddev=units**-0.5),
        **kwargs,
    )
