"""Keras metrics whose state does not grow with the samples, exact over ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ..foundation.ranks import Ranks
from .evaluation.metrics import AUCCounts
from .evaluation.thresholds import THRESHOLDS


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class AUC(tf.keras.metrics.Metric):
    """``tf.keras.metrics.AUC(8000)`` by whole numbers: the states of ranks add up exactly.

    Its state does not grow with the samples. A sample whose weight is 0 does not count, any other
    counts once.

    Args:
        name: of the metric.
        dtype: Keras's; what is counted are whole numbers.
    """

    def __init__(self, name: str = "auc", dtype: Any = None) -> None:
        """Begin with nothing counted."""
        super().__init__(name, dtype)
        self.counts = self.add_weight(
            "counts", [2 * (THRESHOLDS - 1)], initializer="zeros", dtype=tf.int64
        )

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Count samples between thresholds.

        Args:
            y_true: labels, clicks where above 0.5.
            y_pred: probabilities, of the same number.
            sample_weight: 0 for what is no sample; None counts all.
        """
        labels, scores = (tf.reshape(tf.cast(x, tf.float32), [-1]) for x in (y_true, y_pred))
        scores = tf.where(tf.math.is_nan(scores), 0.0, scores)
        between = tf.math.ceil(scores * tf.constant(THRESHOLDS - 1, tf.float32)) - 1
        place = tf.cast(tf.clip_by_value(between, 0, THRESHOLDS - 2), tf.int32)
        place += (THRESHOLDS - 1) * tf.cast(labels > 0.5, tf.int32)
        counted = tf.ones_like(place, tf.int64)
        if sample_weight is not None:
            counted = tf.cast(tf.cast(tf.reshape(sample_weight, [-1]), tf.bool), tf.int64)
        self.counts.assign_add(tf.math.unsorted_segment_sum(counted, place, 2 * (THRESHOLDS - 1)))

    def result(self) -> tf.Tensor:
        """Return the area; NaN where there are only clicks or only others."""
        rates = tf.cast(tf.reshape(self.counts, [2, -1]), tf.float64)
        rates = tf.cumsum(rates[:, ::-1], axis=1)
        rates = tf.pad(rates, [[0, 0], [1, 0]]) / rates[:, -1:]
        false_positive, true_positive = rates[0], rates[1]
        heights = (true_positive[1:] + true_positive[:-1]) / 2
        area = tf.reduce_sum((false_positive[1:] - false_positive[:-1]) * heights)
        return tf.cast(area, tf.float32)

    def reset_state(self) -> None:
        """Forget what was counted."""
        self.counts.assign(tf.zeros_like(self.counts))

    def exact_result(self, ranks: Ranks) -> float | None:
        """Return the area over all ranks in float64; None where there is one kind of label."""
        counts = AUCCounts()
        counts.counts = np.reshape(self.counts.numpy(), counts.counts.shape)
        return counts.over_ranks(ranks).result()
