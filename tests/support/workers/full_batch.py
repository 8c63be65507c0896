"""Batches of the same size in every step, as the loaders give them."""

from __future__ import annotations

import tensorflow as tf


def filled(columns, labels, rows):
    """Fill a batch up to so many rows with zeros of weight 0."""

    def fill(values):
        lacking = [[0, rows - len(labels)], *[[0, 0]] * (values.shape.rank - 1)]
        return tf.pad(values, lacking)

    full = {name: fill(values) for name, values in columns.items()}
    return full, fill(labels[:, None]), fill(tf.ones([len(labels), 1]))
