"""Sums of the gradients of rows that a batch names several times.

Within the lookup, as a rule (:mod:`merlin_sim.models.blocks.embeddings.table_lookup`). But XLA
makes ``tf.unique`` a loop that takes one id after the other: on a processor that is quick, a GPU
needs minutes for the ids of one batch. A step that is compiled for a GPU has the choice of two
other forms: a row for each id, which what needs them added up does after it, or a gradient of the
whole table.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Any

import tensorflow as tf


class TableGradient(Enum):
    """Form of the gradient that a lookup gives a table."""

    EACH_ROW_ONCE = "each row once"
    """The rows that the batch names, those named several times added up."""

    ROW_FOR_EACH_ID = "row for each id"
    """As many rows as the batch has ids."""

    WHOLE_TABLE = "whole table"
    """A tensor of the table's shape, zeros in the rows that the batch does not name. It is for an
    optimizer that moves every row in every step, as Adam does, and it has the rows added up without
    a list of them: of histories nothing is added for padding, whose gradient is 0."""


_form: ContextVar[TableGradient] = ContextVar("form", default=TableGradient.EACH_ROW_ONCE)


@contextmanager
def table_gradients(form: TableGradient) -> Iterator[None]:
    """Within this block lookups give tables a gradient of this form."""
    token = _form.set(form)
    try:
        yield
    finally:
        _form.reset(token)


def form_of_table_gradients() -> TableGradient:
    """Return which form lookups are to give."""
    return _form.get()


def added_up(gradient: Any) -> Any:
    """Let the gradient of a table name each row once; others stay as they are.

    >>> rows = tf.IndexedSlices(tf.ones([3, 1]), tf.constant([7, 2, 7]), tf.constant([9, 1]))
    >>> added = added_up(rows)
    >>> added.indices.numpy().tolist(), added.values.numpy().tolist()
    ([7, 2], [[2.0], [1.0]])
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, indices = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, indices, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


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
