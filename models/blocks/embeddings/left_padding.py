"""Histories as the models read them: left-padded to one length, newest last."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ....foundation.batch_names import HISTORY_END, OFFSETS, VALUES
from ..checks import OptionError, check_positive
from ..serialization import ConfiguredBlock, register_block


@register_block
class LeftPadding(ConfiguredBlock):
    """Bring history columns to [batch, length], whatever form they arrive in.

    A column may be ragged (``name__values`` with ``name__offsets``, as Merlin's loader gives it,
    or a ``tf.RaggedTensor``) or padded already ([batch, any] or [batch, any, 1]). All give the same
    result: oldest first, newest last, zeros on the left. Of a history longer than the length the
    newest positions are kept; outside a graph a warning says so, once for each column. Of a batch
    with :data:`~merlin_sim.foundation.batch_names.HISTORY_END` the columns stay as they are:
    its ends count the positions of histories that are padded already.

    >>> padding = LeftPadding({"clicks": 3})
    >>> values, offsets = tf.constant([7, 8, 9]), tf.constant([0, 1, 3])
    >>> padding({"clicks__values": values, "clicks__offsets": offsets})["clicks"].numpy().tolist()
    [[0, 0, 7], [0, 8, 9]]

    Args:
        lengths: Column name -> length; columns not named pass through as they are.
    """

    def __init__(self, lengths: Mapping[str, int], **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.lengths = {name: check_positive(name, length) for name, length in lengths.items()}
        self._warned: set[str] = set()

    def call(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Pad the history columns of ``inputs``; a column that is not there is left out."""
        outputs = dict(inputs)
        if HISTORY_END in outputs:
            return outputs
        for name, length in self.lengths.items():
            column = _take_column(outputs, name)
            if column is None:
                continue
            is_ragged = isinstance(column, tf.RaggedTensor)
            eager = tf.executing_eagerly()  # in a graph the width may be unknown
            if eager and name not in self._warned and (is_ragged or column.shape[1] > length):
                self._warn_if_cut(name, longest_of(column), length)
            outputs[name] = (pad_ragged if is_ragged else pad_dense)(column, length)
        return outputs

    def _warn_if_cut(self, name: str, longest: int, length: int) -> None:
        if longest > length:
            self._warned.add(name)
            warnings.warn(
                f"Column {name!r} has a history of {longest} positions where the schema says at "
                f"most {length}: of such histories the newest {length} are kept.",
                stacklevel=3,
            )


def longest_of(column: tf.Tensor | tf.RaggedTensor) -> int:
    """Return the longest row's length, without the padding on its left."""
    if isinstance(column, tf.RaggedTensor):
        return int(np.max(column.row_lengths().numpy(), initial=0))
    rows = column.numpy().reshape(column.shape[0], column.shape[1])
    filled = np.flatnonzero(np.any(rows != 0, axis=0))
    return int(rows.shape[1] - filled[0]) if filled.size else 0


def pad_ragged(column: tf.RaggedTensor, length: int) -> tf.Tensor:
    """Left-pad ragged rows with zeros, keeping the newest ``length``: [batch, length]."""
    ends = column.row_splits[1:, tf.newaxis]
    starts = column.row_splits[:-1, tf.newaxis]
    indices = ends - length + tf.range(length, dtype=ends.dtype)  # [batch, length]
    # One zero before all values is what padded positions read, so that no value is needed at all.
    values = tf.reshape(column.flat_values, [-1])
    values = tf.concat([tf.zeros([1], values.dtype), values], axis=0)  # a GPU pads no whole numbers
    return tf.gather(values, tf.where(indices >= starts, indices + 1, 0))


def pad_dense(column: tf.Tensor, length: int) -> tf.Tensor:
    """Left-pad rows of one length with zeros, or keep their newest: [batch, length]."""
    if column.shape.rank == 3:
        column = tf.squeeze(column, axis=-1)
    if column.shape[1] == length:
        return column
    zeros = tf.zeros([tf.shape(column)[0], length], column.dtype)
    padded = tf.concat([zeros, column], axis=1)[:, -length:]
    return tf.ensure_shape(padded, [None, length])


def _take_column(columns: dict[str, Any], name: str) -> Any:
    column = columns.pop(name, None)
    values, offsets = columns.pop(name + VALUES, None), columns.pop(name + OFFSETS, None)
    if column is not None or (values is None and offsets is None):
        return column
    if values is None or offsets is None:
        raise OptionError(f"Column {name!r} needs both {name + VALUES!r} and {name + OFFSETS!r}.")
    offsets = tf.reshape(offsets, [-1])
    if not offsets.dtype.is_integer:
        offsets = tf.cast(offsets, tf.int32)
    return tf.RaggedTensor.from_row_splits(tf.reshape(values, [-1]), offsets, validate=False)
