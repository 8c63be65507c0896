"""Low-rank cross layers of DCN-v2."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block

from ..checks import check_positive
from ..serialization import register_block


@register_block
class LowRankCross(Block):
    """Multiplies the inputs into a linear function of each layer before.

        x_{i+1} = x_0 * (V_i U_i x_i + b_i) + x_i

    (https://arxiv.org/abs/2008.13535, equation 2). Kernels start normal after Glorot, biases at 0.

    >>> LowRankCross(layers=2, rank=3)(tf.ones([4, 8])).shape
    TensorShape([4, 8])

    Args:
        layers: How many.
        rank: Length of ``U x``.
    """

    def __init__(self, layers: int = 3, rank: int = 512, **kwargs: Any) -> None:
        """Check the options and make the layers; ``build`` knows how wide the inputs are."""
        super().__init__(**kwargs)
        self.layers = check_positive("layers", layers)
        self.rank = check_positive("rank", rank)
        self.u: list[tf.keras.layers.Dense] = []
        self.v: list[tf.keras.layers.Dense] = []

    def build(self, input_shape: Any) -> None:
        """Create the weights for inputs of [batch, dim]."""
        dim, policy = int(input_shape[-1]), self._dtype_policy
        for place in range(self.layers):
            kernel = {"kernel_initializer": "glorot_normal", "dtype": policy}
            u = tf.keras.layers.Dense(self.rank, use_bias=False, name=f"u_{place}", **kernel)
            v = tf.keras.layers.Dense(dim, name=f"v_{place}", **kernel)
            u.build(tf.TensorShape([None, dim]))
            v.build(tf.TensorShape([None, self.rank]))
            self.u.append(u)
            self.v.append(v)
        super().build(input_shape)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Cross.

        Args:
            inputs: [batch, dim].

        Returns:
            [batch, dim].
        """
        crossed = inputs
        for u, v in zip(self.u, self.v):  # noqa: B905  autograph has no strict
            crossed = inputs * v(u(crossed)) + crossed
        return crossed

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """[batch, dim] -> [batch, dim]."""
        return tf.TensorShape([input_shape[0], input_shape[-1]])

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        return {**super().get_config(), "layers": self.layers, "rank": self.rank}
