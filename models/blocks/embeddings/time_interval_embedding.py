"""Vectors for how long before the target an interaction was."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block

from ..checks import check_positive
from ..serialization import register_block


@register_block
class TimeIntervalEmbedding(Block):
    """A table over intervals by their order of magnitude: row floor(log2(1 + interval)).

    The same for any unit of time: with 32 rows seconds reach 136 years. Intervals below 0 and NaN
    count as 0, those beyond the table as its last row. (SIM, https://arxiv.org/abs/2006.05639,
    section 3.2, embeds the interval of each position; the paper does not say how it is cut.)

    >>> embedding = TimeIntervalEmbedding(dim=4, buckets=8)
    >>> embedding.bucket(tf.constant([0.0, 1.0, 6.9, 1e9, -5.0])).numpy().tolist()
    [0, 1, 2, 7, 0]

    Args:
        dim: Length of the vectors.
        buckets: Rows of the table.
    """

    def __init__(self, dim: int, buckets: int = 32, **kwargs: Any) -> None:
        """Check the options."""
        super().__init__(autocast=False, **kwargs)
        self.dim = check_positive("dim", dim)
        self.buckets = check_positive("buckets", buckets)

    def build(self, input_shape: Any) -> None:
        """Create the table."""
        limit = self.buckets**-0.5
        self.table = self.add_weight(
            "table",
            [self.buckets, self.dim],
            initializer=tf.keras.initializers.RandomUniform(-limit, limit),
        )
        super().build(input_shape)

    def bucket(self, intervals: tf.Tensor) -> tf.Tensor:
        """Return the row of each interval, int32."""
        intervals = tf.cast(intervals, tf.float32)
        intervals = tf.where(intervals > 0, intervals, 0.0)  # NaN is not above 0
        magnitude = tf.math.log1p(intervals) / tf.math.log(2.0)
        # The nudge keeps log2(2^k) from being rounded down to k - 1.
        rows = tf.floor(tf.minimum(magnitude + 1e-5, float(self.buckets - 1)))
        return tf.cast(rows, tf.int32)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Embed intervals: [...] -> [..., dim]."""
        return tf.gather(tf.convert_to_tensor(self.table), self.bucket(inputs))

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        config = super().get_config()
        config.pop("autocast", None)
        return {**config, "dim": self.dim, "buckets": self.buckets}
