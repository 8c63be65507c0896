"""A batch as a feed gives it: plain rows, or users x candidates with fillers among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy.typing as npt
import tensorflow as tf

from ...foundation.batch_names import HISTORY_END

Array = npt.NDArray[Any]


Make = Callable[[Any], tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]]
"""Makes a batch of what a loader gives for a step: columns, labels and weights."""


class SampleBatch(NamedTuple):
    """Columns, labels and, of users x candidates, weights.

    >>> labels, weights = tf.constant([[0.0, 1.0], [1.0, 0.0]]), tf.constant([[1.0, 1], [1, 0]])
    >>> batch = SampleBatch({"user": tf.constant([7, 8])}, labels, weights)
    >>> batch.counted(batch.column("user").numpy()).tolist()
    [7, 7, 8]
    """

    columns: dict[str, tf.Tensor]
    labels: tf.Tensor
    """[rows], or [users, candidates]."""
    weights: tf.Tensor | None = None
    """[users, candidates], 0 for a filler; None where every row is one sample."""

    def counted(self, values: Array) -> Array:
        """Choose the samples that count, of [samples, ...], a row's one after the other."""
        if self.weights is None:
            return values
        chosen: Array = values[self.weights.numpy().reshape(-1) != 0]
        return chosen

    def column(self, name: str) -> tf.Tensor:
        """What a column says of each sample, a row's one after the other, as TensorFlow ops."""
        values = self.columns[name]
        if values.shape.rank == 1 and self.labels.shape.rank == 2:
            values = tf.broadcast_to(values[:, tf.newaxis], tf.shape(self.labels))
        return tf.reshape(values, [-1])

    def flat(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Labels and weights of all samples, a row's one after the other, as TensorFlow ops."""
        labels = tf.reshape(self.labels, [-1])
        weights = tf.ones_like(labels, tf.float32)
        return labels, weights if self.weights is None else tf.reshape(self.weights, [-1])


def weights_over_counted(sample_weight: tf.Tensor | None) -> tf.Tensor | None:
    """Rescale weights so that a mean over all samples is one over those that count.

    A sample of weight 0 then changes nothing, neither the sum nor what it is divided by.

    >>> weights_over_counted(tf.constant([[1.0, 0.0], [0.0, 1.0]])).numpy().tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    if sample_weight is None:
        return None
    weight = tf.cast(sample_weight, tf.float32)
    counted = tf.math.count_nonzero(weight, dtype=tf.float32)
    return weight * tf.math.divide_no_nan(tf.cast(tf.size(weight), tf.float32), counted)


def mean_over_counted(batch: SampleBatch) -> SampleBatch:
    """Give plain rows weights whose mean is over the rows that count.

    Models do so themselves with a batch of users x candidates.
    """
    if HISTORY_END in batch.columns:
        return batch
    return batch._replace(weights=weights_over_counted(batch.weights))
