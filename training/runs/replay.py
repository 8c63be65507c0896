"""Rows of an older dataset in each batch, so that what they taught is not forgotten.

A batch is a smaller one of the new data with rows of the old behind it. The old data's feed goes on
from batch to batch and from one of its epochs to the next; where it is follows from how many steps
the run has done, so that ranks and resumes see the same rows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

import tensorflow as tf

from ...dataloader.behaviour_samples import Batch
from ...dataloader.epoch_plan import EpochPlan
from ...dataloader.loader import Loader


class ReplayFeed:
    """Batches of new rows with old ones behind them; an epoch is one of the new data.

    The feed of the old data has full batches alone (``drop_last``).
    """

    def __init__(self, new: Loader, old: Loader) -> None:
        """Begin with the first step of the first epoch."""
        self._new, self._old = new, old
        self.start_at(0)

    @property
    def samples(self) -> int:
        """Samples of an epoch that are new."""
        return self._new.samples

    def plan(self, epoch: int) -> EpochPlan:
        """Say how many steps an epoch has, and the new rows of each."""
        return self._new.plan(epoch)

    @property
    def seed(self) -> int:
        """The run's."""
        return self._new.seed

    @property
    def first_step(self) -> int:
        """The step with which the next iteration begins."""
        return self._new.first_step

    def start_at(self, epoch: int, step: int = 0) -> None:
        """Let the next iteration begin with ``step`` of ``epoch``."""
        self._new.start_at(epoch, step)
        done = epoch * self._new.plan(0).steps + step
        self._old.start_at(*divmod(done, self._old.plan(0).steps))

    def inputs(self) -> Generator[Any, None, None]:
        """Give, for each step of the epoch, what its batch is made of."""
        with closing(self._endlessly_old()) as old, closing(self._new.inputs()) as new:
            for given in new:
                yield given, next(old)

    def make(self, given: Any) -> Batch:
        """Make the batch of a step, in TensorFlow ops: columns, labels and weights."""
        new, old = given
        batch: Batch = tf.nest.map_structure(_behind, self._new.make(new), self._old.make(old))
        return batch

    def __iter__(self) -> Iterator[Any]:
        for given in self.inputs():
            yield self.make(given)

    def _endlessly_old(self) -> Generator[Any, None, None]:
        while True:
            yield from self._old.inputs()


def _behind(new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
    return tf.concat([new, tf.cast(old, new.dtype)], axis=0)


TrainFeed = Loader | ReplayFeed
