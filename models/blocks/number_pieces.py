"""Numbers cut into pieces, so that a classifier may read of each range what it says."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .checks import check_positive
from .serialization import ConfiguredBlock, register_block

LARGEST = 12.0
"""Pieces are cut from 0 to here: logarithms of counts reach it at 160,000."""


@register_block
class NumberPieces(ConfiguredBlock):
    """Encode numbers piecewise linearly (https://arxiv.org/abs/2203.05556).

    Pieces are of equal width from 0 to 12, where counts' logarithms lie. Of each piece that a
    number is beyond there is 1, of that in which it lies how far it is, of those after it 0. What
    a number has below 0 is added to its first piece, and what it has above 12 to its last one.

    >>> pieces = NumberPieces(4)
    >>> pieces(tf.constant([[4.5, -3.0, 13.5]])).numpy().reshape(3, 4).tolist()
    [[1.0, 0.5, 0.0, 0.0], [-3.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 2.5]]

    Args:
        pieces: How many there are.
    """

    def __init__(self, pieces: int, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.pieces = check_positive("pieces", pieces)

    def call(self, numbers: tf.Tensor) -> tf.Tensor:
        """Encode numbers: [..., numbers] -> [..., numbers x pieces]."""
        numbers = tf.cast(numbers, tf.float32)
        width = LARGEST / self.pieces
        low = tf.range(self.pieces, dtype=tf.float32) * width
        inside = tf.clip_by_value(numbers, 0.0, LARGEST)
        first, last = (tf.one_hot(index, self.pieces) for index in (0, self.pieces - 1))
        beyond = (numbers - inside)[..., tf.newaxis]
        cut = tf.clip_by_value((inside[..., tf.newaxis] - low) / width, 0.0, 1.0)
        cut += tf.minimum(beyond, 0.0) * first + tf.maximum(beyond, 0.0) * last
        shape = tf.concat([tf.shape(numbers)[:-1], [numbers.shape[-1] * self.pieces]], axis=0)
        found = tf.reshape(cut, shape)
        found.set_shape([*numbers.shape[:-1], numbers.shape[-1] * self.pieces])
        return tf.cast(found, self.compute_dtype)
