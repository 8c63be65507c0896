"""Weighted means of a history, each with a learned weight for every place."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block

from ..blocks.attention.masked_softmax import masked_softmax
from ..blocks.checks import check_positive
from ..blocks.serialization import register_block

SLOPES = (0.0, 1.0, 0.3, 0.1)
"""How much less a place counts than the next one, in the exponent, when training begins."""


@register_block
class PlaceWeights(Block):
    """Softmax over the real places of a learned number for each, once for every weighting.

    A weighting says how long ago it looks. The first begins as a plain mean, the second with the
    newest places, the third and fourth between them; then they begin anew.

    >>> real = tf.constant([[False, True, True]])
    >>> means = PlaceWeights(1, 3)(tf.constant([[[9.0], [2.0], [4.0]]]), real)
    >>> means.numpy().tolist()
    [[3.0]]

    Args:
        weightings: How many.
        places: Positions of a history.
    """

    def __init__(self, weightings: int, places: int, **kwargs: Any) -> None:
        """Check the sizes."""
        super().__init__(**kwargs)
        self.weightings = check_positive("weightings", weightings)
        self.places = check_positive("places", places)

    def build(self, input_shape: Any) -> None:
        """Create the numbers: [weightings, places]."""
        place = tf.range(self.places, dtype=tf.float32)[tf.newaxis] - float(self.places - 1)
        slopes = [[SLOPES[number % len(SLOPES)]] for number in range(self.weightings)]
        start = (tf.constant(slopes) * place).numpy()
        self.numbers = self.add_weight(
            "numbers", start.shape, initializer=tf.keras.initializers.Constant(start)
        )
        super().build(input_shape)

    def call(self, vectors: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        """Return the means side by side, zeros for an empty history.

        Args:
            vectors: [users, places, dim].
            real: [users, places] Which places hold a position of the history.

        Returns:
            [users, weightings x dim].
        """
        mask = real[:, tf.newaxis]  # [users, 1, places]
        numbers = tf.cast(self.numbers, tf.float32)[tf.newaxis]
        shares = masked_softmax(tf.broadcast_to(numbers, self._shape(real)), mask)
        shares *= tf.cast(mask, shares.dtype)  # an empty history has equal weights, all of padding
        means = tf.matmul(tf.cast(shares, vectors.dtype), vectors)  # [users, weightings, dim]
        return tf.reshape(means, [-1, self.weightings * int(vectors.shape[-1])])

    def _shape(self, real: tf.Tensor) -> list[Any]:
        return [tf.shape(real)[0], self.weightings, self.places]

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """[users, places, dim] -> [users, weightings x dim]."""
        return tf.TensorShape([input_shape[0], self.weightings * int(input_shape[-1])])

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        return {**super().get_config(), "weightings": self.weightings, "places": self.places}
