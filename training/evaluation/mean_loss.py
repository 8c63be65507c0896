"""The loss that training minimises, over data that it does not train on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import tensorflow as tf

from ...dataloader.loader import Loader
from ...foundation.ranks import Ranks
from ...ranks.collectives import gather_objects
from ...steps.sample_batch import Make, SampleBatch, mean_over_counted
from ...steps.train_step import counted_samples


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
        with closing(feed.inputs()) as inputs:
            for given in inputs:
                alive()
                loss, count = self._of_given(given, feed.make)  # every rank runs the model
                if int(count):
                    total += float(loss) * int(count)
                    samples += int(count)
        sums = gather_objects((total, samples), ranks)
        mean: float = sum(loss for loss, _ in sums) / sum(count for _, count in sums)
        return mean

    def _of_given(self, given: Any, make: Make) -> Any:
        if self._loss is None:

            def compute(given: Any) -> tuple[tf.Tensor, tf.Tensor]:
                batch = mean_over_counted(SampleBatch(*make(given)))
                losses, _ = self.model.compute_step(*batch, training=False)
                return losses[0], counted_samples(batch.labels, batch.weights)

            self._loss = tf.function(compute, autograph=False)
        return self._loss(given)
