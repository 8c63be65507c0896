"""A batch as a feed gives it: plain rows, or users x candidates with fillers among them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ..foundation.batch_names import OFFSETS, VALUES

Array = npt.NDArray[Any]


class SampleBatch(NamedTuple):
    """Columns, labels and, of users x candidates, weights.

    >>> labels, weights = tf.constant([[0.0, 1.0], [1.0, 0.0]]), tf.constant([[1.0, 1], [1, 0]])
    >>> batch = SampleBatch({"user": tf.constant([7, 8])}, labels, weights)
    >>> batch.samples, batch.of_samples("user").tolist()
    (3, [7, 7, 8])
    """

    columns: dict[str, tf.Tensor]
    labels: tf.Tensor
    """[rows], or [users, candidates]."""
    weights: tf.Tensor | None = None
    """[users, candidates], 0 for a filler; None where every row is one sample."""

    @property
    def samples(self) -> int:
        """How many samples count: all but fillers."""
        if self.weights is None:
            return int(self.labels.shape[0])
        return int(np.count_nonzero(self.weights.numpy()))

    def counted(self, values: Array) -> Array:
        """Choose the samples that count.

        Args:
            values: [samples, ...], a row's one after the other; more than the batch has, where it
                was given a row of zeros (:meth:`with_a_row`).
        """
        values = values[: int(tf.size(self.labels))]
        if self.weights is None:
            return values
        chosen: Array = values[self.weights.numpy().reshape(-1) != 0]
        return chosen

    def counted_labels(self) -> Array:
        """Return the labels of the samples that count."""
        return self.counted(self.labels.numpy().reshape(-1))

    def of_samples(self, name: str) -> Array:
        """Return what a column of rows, [rows], says of each sample that counts."""
        values = self.columns[name].numpy()
        if self.weights is None:
            return self.counted(values)
        return self.counted(values.repeat(self.weights.shape[1]))

    def with_a_row(self) -> SampleBatch:
        """Give a batch without rows one row of zeros, for a rank that has none in the last step.

        Its share is 0, so that it changes no gradient and no loss.
        """
        if self.labels.shape[0]:
            return self
        columns = {name: _one_row(name, value) for name, value in self.columns.items()}
        weights = None if self.weights is None else _one_row("", self.weights)
        return SampleBatch(columns, _one_row("", self.labels), weights)


def _one_row(name: str, tensor: tf.Tensor) -> tf.Tensor:
    if name.endswith(VALUES):  # of one empty list
        return tensor
    rows = 2 if name.endswith(OFFSETS) else 1
    return tf.zeros([rows, *tensor.shape[1:]], tensor.dtype)
