"""The loss that training minimises, over data that it does not train on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ...dataloader.loader import Loader
from ...foundation.ranks import Ranks
from ...ranks.collectives import gather_objects
from ...steps.sample_batch import SampleBatch
from ...steps.train_step import batch_spec


class MeanLoss:
    """Goes through a feed and gives the mean loss of its samples, without dropout.

    Args:
        model: as :class:`~merlin_sim.steps.train_step.TrainStep` takes it.
    """

    def __init__(self, model: Any) -> None:
        """Make the graph with the first batch."""
        self.model = model
        self._loss: Any = None

    def __call__(
        self, feed: Loader, ranks: Ranks, alive: Callable[[], None] = lambda: None
    ) -> float:
        """Return the mean over the samples of all ranks.

        Args:
            feed: this rank's rows, with every column that training reads.
            ranks: the run.
            alive: called with every batch.
        """
        total, samples = 0.0, 0
        for given in feed:
            alive()
            batch = SampleBatch(*given)
            loss = float(self._of_batch(batch.with_a_row()))  # every rank runs the model
            if batch.samples:
                total += loss * batch.samples
                samples += batch.samples
        sums = gather_objects((total, samples), ranks)
        mean: float = sum(loss for loss, _ in sums) / sum(count for _, count in sums)
        return mean

    def _of_batch(self, batch: SampleBatch) -> tf.Tensor:
        given = {"columns": batch.columns, "labels": batch.labels}
        if batch.weights is not None:
            given["sample_weight"] = batch.weights
        if self._loss is None:
            self._loss = tf.function(
                self._compute, input_signature=[batch_spec(given)], autograph=False
            )
        return self._loss(given)

    def _compute(self, given: dict[str, Any]) -> tf.Tensor:
        columns, labels, weight = given["columns"], given["labels"], given.get("sample_weight")
        losses, _ = self.model.compute_step(columns, labels, weight, training=False)
        return losses[0]
