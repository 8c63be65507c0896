"""The first values of a table, the same for a part of it as for the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ....placement.table import Shard

BLOCK_ROWS = 65_536
"""Rows that are drawn at once."""


class InitialTable(tf.keras.initializers.Initializer):
    """Uniform in +-``limit``, drawn block by block from one seed.

    However a table is cut, its parts together begin as the whole table would: that is why a part
    draws whole rows and keeps its columns.

    Args:
        limit: of the values.
        shard: the rows and columns that are wanted.
        rows: of the whole table.
        width: of the whole table.
    """

    def __init__(self, limit: float, shard: Shard, rows: int, width: int) -> None:
        """Take the seed from TensorFlow's, as every rank does in the same order."""
        self.limit, self.shard, self.rows, self.width = limit, shard, rows, width
        with tf.init_scope():
            self.seed = tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32).numpy()

    def __call__(self, shape: Any, dtype: Any = None, **keras: Any) -> tf.Tensor:
        """Draw the part."""
        shard = self.shard
        kept = slice(shard.first_column, shard.first_column + shard.columns)
        values = np.empty((shard.rows, shard.columns), np.float32)
        first, last = shard.first_row, shard.first_row + shard.rows
        for block in range(first // BLOCK_ROWS, -(-last // BLOCK_ROWS)):
            begin = max(first, block * BLOCK_ROWS)
            end = min(last, (block + 1) * BLOCK_ROWS)
            own = slice(begin - block * BLOCK_ROWS, end - block * BLOCK_ROWS)
            values[begin - first : end - first] = self._draw(block)[own, kept]
        return tf.cast(values, dtype or tf.float32)

    def _draw(self, block: int) -> Any:
        rows = min(BLOCK_ROWS, self.rows - block * BLOCK_ROWS)
        seed = [int(self.seed[0]), int(self.seed[1]) + block]
        return tf.random.stateless_uniform(
            [rows, self.width], seed, minval=-self.limit, maxval=self.limit
        ).numpy()
