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
    flat = [tf.reshape(part, [-1]) for part in ids]
    rows, places = tf.unique(tf.concat(flat, axis=0))
    places = tf.split(places, [tf.size(part) for part in flat])
    places = [tf.reshape(place, tf.shape(part)) for place, part in zip(places, ids)]  # noqa: B905
    return _spread(tf.gather(table, rows), places)


def _spread(vectors: tf.Tensor, places: list[tf.Tensor]) -> list[tf.Tensor]:
    """Gather vectors, with a gradient that adds up where they stand.

    It is given the rows and not the table: a gradient of one's own takes what it depends on as
    values, and the value of a table is a copy of it.
    """

    @tf.custom_gradient
    def spread(vectors: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., object]]:
        def gradient(*upstream: tf.Tensor) -> tf.Tensor:
            sums = tf.zeros_like(vectors)
            for place, of_place in zip(places, upstream):  # noqa: B905  autograph has no strict
                of_place = tf.reshape(of_place, [-1, vectors.shape[1]])
                sums = tf.tensor_scatter_nd_add(sums, tf.reshape(place, [-1, 1]), of_place)
            return sums

        return [tf.gather(vectors, place) for place in places], gradient

    return list(spread(vectors))


def plain_lookup(table: tf.Variable, ids: list[tf.Tensor]) -> list[tf.Tensor]:
    """Look up several tensors of ids, where no gradient is wanted."""
    return [tf.gather(table, part) for part in ids]
