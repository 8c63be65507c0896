"""Which positions have the greatest weights."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from ....foundation.gpu_forms import has_gpu_forms
from ....foundation.in_xla import in_xla
from ..shapes import sizes

MOST_RANKED = 128
"""Positions that are ranked by comparing all with all, on a GPU; more of them are sorted."""

SMALLEST = np.finfo(np.float32).tiny
"""The smallest number that a processor tells from 0."""


def top_k_mask(weights: tf.Tensor, top_k: int) -> tf.Tensor:
    """Mark the ``top_k`` greatest weights of each row that are above 0; a row is the last axis.

    The same positions as ``tf.math.top_k`` takes: among equal ones the first. Ties matter, because
    equal items have equal weights. No weight is below 0.

    >>> top_k_mask(tf.constant([[0.2, 0.4, 0.2, 0.2, 0.0]]), 3).numpy().astype(int).tolist()
    [[1, 1, 1, 0, 0]]
    """
    return top_k_marks(weights, top_k) > 0


def top_k_marks(weights: tf.Tensor, top_k: int) -> tf.Tensor:
    """Return what :func:`top_k_mask` marks as 1, and 0 elsewhere: [..., positions], float32."""
    if weights.shape[-1] is not None and weights.shape[-1] <= top_k:
        return tf.cast(weights > 0, tf.float32)
    *outer, positions = sizes(weights)
    marks = _top_k_of_rows(tf.reshape(weights, [math.prod(outer), positions]), top_k)
    return tf.reshape(marks, [*outer, positions])


def _top_k_of_rows(weights: tf.Tensor, top_k: int) -> tf.Tensor:
    """Mark the same of rows: [rows, positions]."""
    if has_gpu_forms():  # a choice by what the rows hold would wait for the GPU
        positions = weights.shape[1]
        if in_xla() and positions is not None and positions <= MOST_RANKED:
            marked = _of_best_ranks(weights, top_k)
        else:
            marked = _with_first_ties(weights, _last_that_gets_in(weights, top_k), top_k)
        return tf.cast(marked, tf.float32)
    limit = _last_that_gets_in(weights, top_k)
    kept = tf.cast(weights >= tf.maximum(limit, SMALLEST), tf.float32)
    counts = tf.reduce_sum(kept, axis=1)
    return tf.cond(
        tf.reduce_all(counts <= float(top_k)),
        lambda: kept,
        lambda: _without_late_ties(weights, limit, top_k, kept, counts),
    )


def _of_best_ranks(weights: tf.Tensor, top_k: int) -> tf.Tensor:
    """Count for each weight those that go before it: one kernel of a GPU, where a sort is many.

    A position at a time, so that each of the GPU's threads counts for one weight: a reduction of
    [rows, positions, positions] would share a row's hundred pairs out among its threads.
    """
    positions = tf.range(sizes(weights)[1])
    rank = tf.zeros_like(weights)
    for position, other in enumerate(tf.split(weights, sizes(weights)[1], axis=1)):
        goes_before = tf.where(position < positions, other >= weights, other > weights)
        rank += tf.cast(goes_before, tf.float32)
    return (rank < float(top_k)) & (weights > 0)


def _last_that_gets_in(weights: tf.Tensor, top_k: int) -> tf.Tensor:
    """Return the ``top_k``-th greatest weight of each row: [batch, 1]."""
    if not in_xla() and not has_gpu_forms():  # the kernel is a CPU's
        nth = tf.raw_ops.NthElement(input=weights, n=top_k - 1, reverse=True)
        return nth[:, tf.newaxis]
    best = tf.math.top_k(weights, k=top_k, sorted=False).values
    return tf.reduce_min(best, axis=1, keepdims=True)


def _without_late_ties(
    weights: tf.Tensor, limit: tf.Tensor, top_k: int, kept: tf.Tensor, counts: tf.Tensor
) -> tf.Tensor:
    """Mend the rows in which more were kept than ``top_k``, which are few."""
    if in_xla():  # it has no form for a choice of rows
        return tf.cast(_with_first_ties(weights, limit, top_k), tf.float32)
    rows = tf.where(counts > float(top_k))
    mended = _with_first_ties(tf.gather_nd(weights, rows), tf.gather_nd(limit, rows), top_k)
    return tf.tensor_scatter_nd_update(kept, rows, tf.cast(mended, tf.float32))


def _with_first_ties(weights: tf.Tensor, limit: tf.Tensor, top_k: int) -> tf.Tensor:
    """Take weights equal to the limit only from the first on and while there is room."""
    above = weights > limit
    ties = tf.cast(weights == limit, tf.float32)  # a GPU has no sums of int32
    room = float(top_k) - tf.reduce_sum(tf.cast(above, tf.float32), axis=1, keepdims=True)
    taken = above | ((ties > 0) & (tf.cumsum(ties, axis=1) <= room))
    return taken & (weights > 0)
