"""Many lookups in one table with one sparse gradient."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf


def table_lookup(table: tf.Variable, ids: list[tf.Tensor]) -> list[tf.Tensor]:
    """Look up several tensors of ids, and give the table one gradient for all of them.

    The gradient is sparse and names each row once. Without this, every lookup would hand the
    optimizer (and, between ranks, the wire) its own row for each id, most of them of the same few
    popular items, to be concatenated and summed there; adding the rows up where they stand is
    several times faster.

    >>> table = tf.Variable([[1.0], [2.0], [3.0]])
    >>> with tf.GradientTape() as tape:
    ...     target, history = table_lookup(table, [tf.constant([1]), tf.constant([[1, 2]])])
    ...     loss = tf.reduce_sum(target) + tf.reduce_sum(history)
    >>> gradient = tape.gradient(loss, table)
    >>> gradient.indices.numpy().tolist(), gradient.values.numpy().tolist()
    ([1, 2], [[2.0], [1.0]])

    Args:
        table: [rows, dim].
        ids: Whole numbers below ``rows``, each tensor of any shape.

    Returns:
        For each tensor of ids, [...], the rows, [..., dim].
    """

    @tf.custom_gradient
    def lookup() -> tuple[list[tf.Tensor], Callable[..., object]]:
        def gradient(*upstream: tf.Tensor, variables: list[tf.Variable] | None = None) -> object:
            if not variables:  # the table is frozen
                return []
            flat = [tf.reshape(part, [-1]) for part in ids]
            rows, places = tf.unique(tf.concat(flat, axis=0))
            sums = tf.zeros([tf.size(rows), table.shape[1]], upstream[0].dtype)
            places = tf.split(places[:, tf.newaxis], [tf.size(part) for part in flat])
            for place, vectors in zip(places, upstream):  # noqa: B905  autograph has no strict
                vectors = tf.reshape(vectors, [-1, table.shape[1]])
                sums = tf.tensor_scatter_nd_add(sums, place, vectors)
            return [], [tf.IndexedSlices(sums, rows, tf.shape(table, rows.dtype))]

        return [tf.gather(table, part) for part in ids], gradient

    return list(lookup())
