"""On which side of random planes vectors lie: codes that tell how near they are."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block

from ..checks import check_positive
from ..serialization import register_block


@register_block
class RandomProjection(Block):
    """Signs of a vector's products with random vectors that never change.

        code(x) = (sign(x . r_1), ..., sign(x . r_bits)),    sign(0) = 1

    Two vectors agree in a sign with the probability 1 - angle / pi, whatever their lengths. The
    random vectors are drawn once, when the model is made, and are weights that are not trained:
    checkpoints, exports and copies to other ranks hold them, as they hold the trained ones.

    >>> signs = RandomProjection(bits=8)(tf.constant([[1.0, 2.0], [2.0, 4.0], [-1.0, -2.0]]))
    >>> bool(tf.reduce_all(signs[0] == signs[1])), bool(tf.reduce_all(signs[0] == -signs[2]))
    (True, True)

    Args:
        bits: How many signs a code has.
    """

    def __init__(self, bits: int, **kwargs: Any) -> None:
        """Check the option."""
        super().__init__(autocast=False, **kwargs)
        self.bits = check_positive("bits", bits)

    def build(self, input_shape: Any) -> None:
        """Draw the random vectors for inputs of [..., dim]."""
        self.projection = self.add_weight(
            "projection",
            [int(input_shape[-1]), self.bits],
            initializer=tf.keras.initializers.RandomNormal(stddev=1.0),
            trainable=False,
            experimental_autocast=False,
        )
        super().build(input_shape)

    def call(self, vectors: tf.Tensor) -> tf.Tensor:
        """Return the codes, 1 and -1: [..., dim] -> [..., bits], float32, without a gradient."""
        vectors = tf.stop_gradient(tf.cast(vectors, tf.float32))
        one = tf.ones([], tf.float32)
        return tf.where(tf.matmul(vectors, self.projection) >= 0.0, one, -one)

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        config = super().get_config()
        config.pop("autocast", None)
        return {**config, "bits": self.bits}
