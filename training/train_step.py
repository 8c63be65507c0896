"""One compiled training step: forward, backward, average over ranks, update."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from .distributed import Gradient, Ranks, average_gradients
from .loss_scale import LossScale
from .optimizers import Optimizer


class StepResult(NamedTuple):
    """What a step tells; losses are those of the global batch."""

    losses: tf.Tensor
    """[3]: total_loss, classification_loss, dien_aux_loss."""
    stopped: tf.Tensor
    """Whether any rank was asked to stop."""
    finite: tf.Tensor
    """Whether the gradients were finite; if not, no weight was changed."""
    logits: tf.Tensor
    """This rank's, [rows]."""


class TrainStep:
    """Trains ``model`` on one batch at a time.

    Args:
        model: anything with ``compute_step(columns, labels, training=True)`` giving the losses
            (total, classification, auxiliary) and the logits.
        optimizer: over ``model.trainable_variables``.
        loss_scale: active in mixed precision.
        ranks: the run.
        xla: compile forward and backward pass.
        fp16_compression: see :func:`~.distributed.average_gradients`.
        dense_tables: see :func:`~.distributed.average_gradients`.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Optimizer,
        loss_scale: LossScale,
        ranks: Ranks,
        xla: bool = False,
        fp16_compression: bool = False,
        dense_tables: bool = False,
    ) -> None:
        """Make the graph; it is traced with the first batch."""
        self.model = model
        self.optimizer = optimizer
        self.loss_scale = loss_scale
        self.ranks = ranks
        self.fp16_compression = fp16_compression
        self.dense_tables = dense_tables
        self._gradients = (
            tf.function(self._compute_gradients, jit_compile=True, autograph=False)
            if xla
            else self._compute_gradients
        )
        self._step: Any = None

    def __call__(
        self, columns: dict[str, tf.Tensor], labels: tf.Tensor, share: float, stop: bool = False
    ) -> StepResult:
        """Train on this rank's rows.

        Args:
            columns: the batch.
            labels: [rows].
            share: this rank's rows over the mean number of rows per rank: 1 but in the last
                batch of an epoch, where ranks may have different numbers of rows.
            stop: whether this rank was asked to stop; every rank hears of it.
        """
        if self._step is None:
            signature = [batch_spec(columns), batch_spec(labels)]
            signature += [tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.bool)]
            self._step = tf.function(self._run, input_signature=signature, autograph=False)
        result: StepResult = self._step(
            columns, labels, tf.constant(share, tf.float32), tf.constant(stop)
        )
        return result

    def _compute_gradients(
        self, columns: dict[str, tf.Tensor], labels: tf.Tensor, share: tf.Tensor
    ) -> tuple[list[Gradient], tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            losses, logits = self.model.compute_step(columns, labels, training=True)
            total, classification, auxiliary = losses
            scaled = total * share * self.loss_scale.scale
        gradients = tape.gradient(
            scaled,
            self.optimizer.trained,
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        reported = tf.stack([total, classification, auxiliary]) * share
        return gradients, reported, tf.reshape(logits, [-1])

    def _run(
        self,
        columns: dict[str, tf.Tensor],
        labels: tf.Tensor,
        share: tf.Tensor,
        stop: tf.Tensor,
    ) -> StepResult:
        gradients, losses, logits = self._gradients(columns, labels, share)
        told = tf.concat([losses, [tf.cast(stop, tf.float32)]], axis=0)
        gradients, told = average_gradients(
            gradients, told, self.ranks, self.fp16_compression, self.dense_tables
        )
        gradients, finite = self.loss_scale.unscale(gradients)
        if self.loss_scale.active:
            tf.cond(finite, lambda: self._apply(gradients), lambda: tf.constant(False))
        else:
            self._apply(gradients)
        self.loss_scale.update(finite)
        return StepResult(told[:3], told[3] > 0, finite, logits)

    def _apply(self, gradients: list[Gradient]) -> tf.Tensor:
        self.optimizer.apply(gradients)
        return tf.constant(True)


def batch_spec(tensors: Any) -> Any:
    """Describe tensors with any number of rows: one graph serves full and last batches."""
    return tf.nest.map_structure(lambda t: tf.TensorSpec([None, *t.shape[1:]], t.dtype), tensors)


def with_a_row(
    columns: dict[str, tf.Tensor], labels: tf.Tensor
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Give a batch without rows one row of zeros, for a rank that has none in the last step.

    Its share is 0, so that it changes no gradient and no loss.
    """
    if labels.shape[0]:
        return columns, labels
    filled = {name: _one_row(name, value) for name, value in columns.items()}
    return filled, _one_row("", labels)


def _one_row(name: str, tensor: tf.Tensor) -> tf.Tensor:
    if name.endswith("__values"):  # of one empty list
        return tensor
    rows = 2 if name.endswith("__offsets") else 1
    return tf.zeros([rows, *tensor.shape[1:]], tensor.dtype)
