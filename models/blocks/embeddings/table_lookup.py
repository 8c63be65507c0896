"""Many lookups in one table with one sparse gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from ....foundation.in_xla import in_xla
from ....parallel.steps.table_rows import TableGradient, form_of_table_gradients


def table_lookup(
    table: tf.Variable,
    ids: list[tf.Tensor],
    padded: Sequence[bool] = (),
    with_gradient: bool = True,
) -> list[tf.Tensor]:
    """Look up several tensors of ids, and give the table one gradient for all of them.

    The gradient is sparse and names each row once. Without this, every lookup would hand the
    optimizer (and, between ranks, the wire) its own row for each id, most of them of the same few
    popular items, to be concatenated and summed there; adding the rows up where they stand is
    several times faster. A step that is compiled for a GPU asks for another form of gradient:
    :class:`~merlin_sim.parallel.steps.table_rows.TableGradient`.

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
        padded: Of each tensor of ids, whether its 0 stands for no item, whose vector nothing that
            is trained depends on; none are where this is left out.
        with_gradient: Whether to prepare for a gradient. Without, a lookup costs less.
    """
    form = form_of_table_gradients()
    if form is TableGradient.ROW_FOR_EACH_ID or not with_gradient:
        return [tf.gather(table, part) for part in ids]
    if form is TableGradient.WHOLE_TABLE:
        return _lookup_of_whole(table, ids, padded or [False] * len(ids))
    shared = shared_rows(ids)
    return shared.per_id(tf.gather(table, shared.rows), with_gradient=True)


class SharedRows(NamedTuple):
    """The rows that several tensors of ids name, each once."""

    rows: tf.Tensor
    """The distinct ids."""
    indices: list[tf.Tensor]
    """For each tensor of ids, where its ids stand among them."""

    def per_id(self, vectors: tf.Tensor, with_gradient: bool) -> list[tf.Tensor]:
        """Give every id its row's vector; of a gradient, a row's parts are added up."""
        if with_gradient:
            return _per_id(vectors, self.indices)
        return [tf.gather(vectors, index) for index in self.indices]


def shared_rows(ids: list[tf.Tensor]) -> SharedRows:
    """Find the rows that several tensors of ids name."""
    flat = [tf.reshape(part, [-1]) for part in ids]
    index = tf.int64 if flat[0].dtype == tf.int64 else tf.int32
    rows, indices = tf.unique(tf.concat(flat, axis=0), index)
    shaped, begin = [], 0
    for part in ids:  # a GPU splits no whole numbers
        end = begin + tf.size(part)
        shaped.append(tf.reshape(indices[begin:end], tf.shape(part)))
        begin = end
    return SharedRows(rows, shaped)


def _per_id(vectors: tf.Tensor, indices: list[tf.Tensor]) -> list[tf.Tensor]:
    """Gather vectors, with a gradient that adds up where they stand.

    It is given the rows and not the table: a gradient of one's own takes what it depends on as
    values, and the value of a table is a copy of it.
    """

    @tf.custom_gradient
    def gather(vectors: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., object]]:
        def gradient(*upstream: tf.Tensor) -> tf.Tensor:
            sums = tf.zeros_like(vectors)
            for index, part in zip(indices, upstream):  # noqa: B905  autograph has no strict
                part = tf.reshape(part, [-1, vectors.shape[1]])
                sums = tf.tensor_scatter_nd_add(sums, tf.reshape(index, [-1, 1]), part)
            return sums

        return [tf.gather(vectors, index) for index in indices], gradient

    return list(gather(vectors))


def _lookup_of_whole(
    table: tf.Variable, ids: list[tf.Tensor], padded: Sequence[bool]
) -> list[tf.Tensor]:
    """Look up, with a gradient that has the table's shape.

    On a GPU what is added to one row waits in line: half of a batch's ids may be padding.
    """
    shape = table.shape

    @tf.custom_gradient
    def look_up(values: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., object]]:
        def gradient(*upstream: tf.Tensor) -> tf.Tensor:
            sums = tf.zeros(shape, upstream[0].dtype)
            for part, is_padded, of_part in zip(ids, padded, upstream):  # noqa: B905
                rows = tf.where(part > 0, part, -tf.ones_like(part)) if is_padded else part
                # A negative row is left out.
                if in_xla():  # which adds in place
                    sums = tf.tensor_scatter_nd_add(sums, rows[..., tf.newaxis], of_part)
                else:
                    sums += tf.math.unsorted_segment_sum(of_part, rows, shape[0])
            return sums

        return [tf.gather(values, part) for part in ids], gradient

    return list(look_up(tf.convert_to_tensor(table)))
