"""The objective and its parts, as Keras reports them."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf


class LossMeans:
    """The mean of each loss over an epoch's rows; the first is Keras's ``loss``.

    A plain object, so that Keras does not count the means' variables among a model's weights.

    Args:
        names: of the parts, in the order in which the model gives them.
    """

    def __init__(self, names: Sequence[str]) -> None:
        """Make the means, empty."""
        self.means = [tf.keras.metrics.Mean(name) for name in ("loss", *names)]

    def update(self, losses: Sequence[tf.Tensor] | tf.Tensor, rows: tf.Tensor) -> None:
        """Count a batch of ``rows`` samples."""
        for index, mean in enumerate(self.means):
            mean.update_state(losses[index], sample_weight=rows)
