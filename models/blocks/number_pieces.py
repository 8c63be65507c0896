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
    number is beyond there is 1, of that in which it lies how far it is, of those after it 0. The
    first piece reaches down, and the last one up, without an end.

    >>> pieces = NumberPieces(4)
    >>> pieces(tf.constant([[4.5, -3.0, 13.5]])).numpy().reshape(3, 4).tolist()
    [[1.0, 0.5, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.5]]

    Args:
        pieces: How many there are.
    """

    def __init__(self, pieces: int, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.pieces = check_positive("pieces", pieces)

    def call(self, numbers: tf.Tensor) -> tf.Tensor:
        """Encode numbers: [..., numbers] -> [..., numbers x pieces]."""
        width = LARGEST / self.pieces
        low = tf.range(self.pieces, dtype=tf.float32) * width
        # What the ends clip: nothing below the first piece, nothing above the last.
        least = tf.concat([[tf.float32.min], tf.zeros([self.pieces - 1])], axis=0)
        most = tf.concat([tf.ones([self.pieces - 1]), [tf.float32.max]], axis=0)
        shares = (tf.cast(numbers, tf.float32)[..., tf.newaxis] - low) / width
        cut = tf.minimum(tf.maximum(shares, least), most)
        shape = tf.concat([tf.shape(numbers)[:-1], [numbers.shape[-1] * self.pieces]], axis=0)
        found = tf.reshape(cut, shape)
        found.set_shape([*numbers.shape[:-1], numbers.shape[-1] * self.pieces])
        return tf.cast(found, self.compute_dtype)
