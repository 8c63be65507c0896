"""Operations that have another form where XLA compiles them."""

from __future__ import annotations

import tensorflow as tf
from keras.utils import control_flow_util


def in_xla() -> bool:
    """Return whether XLA compiles what is traced now."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def search_sorted(keys: tf.Tensor, values: tf.Tensor, side: str = "left") -> tf.Tensor:
    """Return how many keys are below each value, or with ``right`` not above it; int64.

    XLA would compare every value with every key: there the keys are bisected.

    >>> search_sorted(tf.constant([2, 5, 5]), tf.constant([[5, 1]])).numpy().tolist()
    [[1, 0]]

    Args:
        keys: [keys] Ascending.
        values: Of any shape.
        side: As of ``tf.searchsorted``.
    """
    if not in_xla() or keys.shape[0] == 0:  # of no keys it could gather none
        found = tf.searchsorted(keys, tf.reshape(values, [-1]), side, tf.int64)
        return tf.reshape(found, tf.shape(values))
    goes_before = tf.less if side == "left" else tf.less_equal

    def halve(found: tf.Tensor, left: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        half = left // 2  # of the keys after `found` that may go before
        step = tf.where(goes_before(tf.gather(keys, found + half - 1), values), half, 0)
        return found + step, left - half

    start = tf.zeros_like(values, tf.int64), tf.size(keys, tf.int64)
    found, _ = tf.while_loop(lambda _, left: left > 1, halve, start)
    return found + tf.cast(goes_before(tf.gather(keys, found), values), tf.int64)
