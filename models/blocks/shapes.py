"""Sizes of tensors, and the change between users x candidates and a row for each."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ...foundation.gpu_forms import has_gpu_forms
from ...foundation.in_xla import in_xla

Size = Any
"""A number where it is known when a graph is made, else a tensor."""


def sizes(tensor: tf.Tensor) -> list[Size]:
    """Return a tensor's sizes, each known one as a number.

    >>> sizes(tf.ones([2, 3]))
    [2, 3]
    """
    if tensor.shape.is_fully_defined():
        return list(tensor.shape)
    found = tf.unstack(tf.shape(tensor))
    return [found[axis] if size is None else size for axis, size in enumerate(tensor.shape)]


def id_type() -> tf.DType:
    """Return the type of ids and indices: int32, which is half the memory; on a GPU int64.

    TensorFlow sends int32 through the host there, to reshape, cut or join it, unless XLA compiles.
    Within one block take the type of what is there: outside of XLA it may be another one. A table
    has fewer than 2^31 rows: FeatureEmbedding refuses others.
    """
    return tf.int64 if has_gpu_forms() and not in_xla() else tf.int32


def as_ids(column: tf.Tensor) -> tf.Tensor:
    """Bring ids or indices to :func:`id_type`."""
    return tf.cast(column, id_type())


def is_one(size: Size) -> bool:
    """Return whether a size is known to be 1."""
    return isinstance(size, int) and size == 1


def sharing_of(candidates: tf.Tensor, windows: tf.Tensor) -> Size:
    """Return how many of a user's candidates, one after the other, share a window.

    >>> sharing_of(tf.ones([2, 6, 4]), tf.ones([2, 3, 5]))
    2

    Args:
        candidates: [users, candidates, ...].
        windows: [users, windows, ...]: one, or as many as there are candidates, or between.
    """
    count, windows_count = sizes(candidates)[1], sizes(windows)[1]
    if is_one(windows_count):
        return count
    known = isinstance(count, int) and isinstance(windows_count, int)
    return count // windows_count if known else 1


def by_window(tensor: tf.Tensor) -> tf.Tensor:
    """Give what a user's candidates share an axis of one window: [users, ...] -> [users, 1, ...].

    What has windows already, of rank 4, stays.
    """
    return tensor if tensor.shape.rank == 4 else tensor[:, tf.newaxis]


def repeat_windows(of_windows: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """Repeat what a window says for the candidates that share it; one window's is left as it is.

    >>> repeat_windows(tf.constant([[[1], [2]]]), tf.ones([1, 4, 3])).numpy().tolist()
    [[[1], [1], [2], [2]]]

    Args:
        of_windows: [users, windows, ...].
        candidates: [users, candidates, ...].
    """
    if is_one(sizes(of_windows)[1]):
        return of_windows
    return tf.repeat(of_windows, sharing_of(candidates, of_windows), axis=1)


def gather_or_zero(values: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """Take each user's values at some indices; zeros where an index is out of range.

    >>> gather_or_zero(tf.constant([[5, 6, 7]]), tf.constant([[[-1, 0], [2, 3]]])).numpy().tolist()
    [[[0, 5], [7, 0]]]

    Args:
        values: [users, length].
        indices: [users, ...].
    """
    last = tf.cast(sizes(values)[1] - 1, indices.dtype)
    found = tf.gather(values, tf.clip_by_value(indices, 0, last), batch_dims=1)
    return tf.where((indices >= 0) & (indices <= last), found, tf.zeros([], values.dtype))


def as_rows(tensor: tf.Tensor) -> tf.Tensor:
    """Give each candidate of each user a row: [users, candidates, ...] -> [samples, ...].

    >>> as_rows(tf.ones([2, 3, 4])).shape
    TensorShape([6, 4])
    """
    users, candidates, *rest = sizes(tensor)
    return tf.reshape(tensor, [users * candidates, *rest])


def repeat_candidates(of_user: tf.Tensor, candidates: Size) -> tf.Tensor:
    """Give each candidate what its user has: [users, 1 or candidates, dim] -> [.., candidates, ..].

    >>> repeat_candidates(tf.constant([[[1]], [[2]]]), 2)[..., 0].numpy().tolist()
    [[1, 1], [2, 2]]
    """
    users, of_each, dim = sizes(of_user)
    if is_one(candidates) or not is_one(of_each):
        return of_user
    return tf.broadcast_to(of_user, [users, candidates, dim])


def repeat_per_candidate(of_user: tf.Tensor, candidates: Size) -> tf.Tensor:
    """Repeat a user's vector for each candidate: [users, dim] -> [samples, dim].

    >>> repeat_per_candidate(tf.constant([[1], [2]]), 2).numpy().tolist()
    [[1], [1], [2], [2]]
    """
    if is_one(candidates):
        return of_user
    users, dim = sizes(of_user)
    repeated = tf.tile(of_user[:, tf.newaxis], [1, candidates, 1])
    return tf.reshape(repeated, [users * candidates, dim])
