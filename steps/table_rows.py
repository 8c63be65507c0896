"""Where the rows of a table that a batch names several times are added up.

Within the lookup, as a rule (:mod:`merlin_sim.models.blocks.embeddings.table_lookup`). But XLA
makes ``tf.unique`` a loop that takes one id after the other: on a processor that is quick, a GPU
needs minutes for the ids of one batch. There a compiled step leaves a row for each id, and what
needs them added up does so after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

_one_by_one: ContextVar[bool] = ContextVar("one_by_one", default=False)


@contextmanager
def a_row_for_each_id(active: bool) -> Iterator[None]:
    """Within this block lookups give tables a gradient with a row for each id, if ``active``."""
    token = _one_by_one.set(active)
    try:
        yield
    finally:
        _one_by_one.reset(token)


def has_a_row_for_each_id() -> bool:
    """Tell whether lookups are to leave it at that."""
    return _one_by_one.get()


def added_up(gradient: Any) -> Any:
    """Let the gradient of a table name each row once; others stay as they are.

    >>> rows = tf.IndexedSlices(tf.ones([3, 1]), tf.constant([7, 2, 7]), tf.constant([9, 1]))
    >>> added = added_up(rows)
    >>> added.indices.numpy().tolist(), added.values.numpy().tolist()
    ([7, 2], [[2.0], [1.0]])
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)
