"""Batches that are there only so that a rank without rows takes part in a step.

They have one row of zeros and count nothing. But rows of tables that they name would be touched by
optimizers that move what a batch names: so their lookups name none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

_counts: ContextVar[tf.Tensor | None] = ContextVar("counts", default=None)


@contextmanager
def batch_that_may_be_filler(counts: tf.Tensor) -> Iterator[None]:
    """Compute within this block with a batch that counts, or does not: a boolean scalar."""
    token = _counts.set(counts)
    try:
        yield
    finally:
        _counts.reset(token)


def rows_named(rows: tf.Tensor) -> tf.Tensor:
    """Return how many of a lookup's rows the batch names: all of them, or none of a filler's."""
    counts = _counts.get()
    return tf.size(rows) if counts is None else tf.where(counts, tf.size(rows), 0)


def without_filler(gradient: Any, counts: tf.Tensor) -> Any:
    """Let the gradient of a table name no row where the batch does not count.

    >>> rows = tf.IndexedSlices(tf.zeros([2, 3]), tf.constant([0, 5]), tf.constant([9, 3]))
    >>> without_filler(rows, tf.constant(False)).indices.shape
    TensorShape([0])
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    kept = tf.where(counts, tf.size(gradient.indices), 0)
    return tf.IndexedSlices(gradient.values[:kept], gradient.indices[:kept], gradient.dense_shape)
