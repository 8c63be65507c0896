"""One training step: forward, backward, average over ranks, update. Every loop runs this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ...foundation.gpu_forms import has_gpu_forms
from ...foundation.ranks import Ranks
from ..ranks.collectives import Gradient, average, average_gradients
from .fused import fused_arithmetic
from .loss_scale import LossScale
from .optimizers import ScaledRows
from .sample_batch import Make, SampleBatch, mean_over_counted
from .table_rows import (
    TableGradient,
    added_up,
    batch_that_may_be_filler,
    table_gradients,
    without_filler,
)

CLIPS = ("clipnorm", "clipvalue", "global_clipnorm")
"""The options of a Keras optimizer that clip gradients."""


class StepResult(NamedTuple):
    """Result of a step; losses are those of the global batch."""

    losses: tf.Tensor
    """In the model's order; the first is what is minimised."""
    stopped: tf.Tensor
    """Whether any rank was asked to stop."""
    finite: tf.Tensor
    """Whether the gradients were finite; if not, no weight was changed."""
    logits: tf.Tensor
    """This rank's, [samples], a row's one after the other."""
    samples: tf.Tensor
    """How many samples of the global batch counted."""
    labels: tf.Tensor
    """This rank's, like the logits."""
    weights: tf.Tensor
    """This rank's, like the logits: 0 where there is no sample."""


class TrainStep:
    """Trains ``model`` on one batch at a time, within whatever graph is being made.

    ``fit`` traces :meth:`run_made` with a loader of this package, :meth:`run_alone` with any other
    data: both run :meth:`run`.

    Args:
        model: anything with ``trainable_variables`` and ``compute_step(columns, labels,
            sample_weight, training=True)``, which gives the losses, the first of them to be
            minimised, and the logits.
        optimizer: a Keras optimizer that has its moments.
        loss_scale: active in mixed precision.
        ranks: the run.
        xla: compile forward and backward pass.
        fp16_compression: see :func:`~merlin_sim.parallel.ranks.collectives.average_gradients`.
        dense_tables: see there.
        own: trained variables of which this rank has a part that no other has.
        scaled_rows: rows of tables that move by a part only; None where all move.
        table_gradient: what lookups give tables; None for what suits the device.
        one_program: XLA makes one program of all that the caller traces, this step in it, so that
            nothing here waits for a choice: that would keep a GPU idle.

    ``fuses``, before the first step, says whether arithmetic is fused: see
    :func:`~merlin_sim.parallel.steps.fused.fused`. It is worth a compilation where batches are
    large.
    """

    fuses = False

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        loss_scale: LossScale,
        ranks: Ranks,
        xla: bool = False,
        fp16_compression: bool = False,
        dense_tables: bool = False,
        own: Sequence[tf.Variable] = (),
        scaled_rows: ScaledRows | None = None,
        table_gradient: TableGradient | None = None,
        one_program: bool = False,
    ) -> None:
        """Choose the forms of tables' gradients, and whether XLA compiles both passes."""
        self.model = model
        self.optimizer = optimizer
        self.loss_scale = loss_scale
        self.ranks = ranks
        self.fp16_compression = fp16_compression
        self.dense_tables = dense_tables
        self.scaled_rows = scaled_rows
        refs = {variable.ref() for variable in own}
        trained = enumerate(model.trainable_variables) if refs else ()
        self.own = frozenset(i for i, variable in trained if variable.ref() in refs)
        if table_gradient is None:
            form, on_gpu = TableGradient, xla and has_gpu_forms()
            table_gradient = form.ROW_FOR_EACH_ID if on_gpu else form.EACH_ROW_ONCE
        self._table_gradient = table_gradient
        self.gradients = (
            tf.function(self._compute_gradients, jit_compile=True, autograph=False)
            if xla
            else self._compute_gradients
        )
        """Of columns, labels, a share and weights: gradients, losses, logits, as they are run."""
        self._xla = xla
        self._one_program = one_program

    def made(self, given: Any, make: Make) -> SampleBatch:
        """Make a batch, within whatever graph is being made."""
        in_graph = tf.function(make, jit_compile=True, autograph=False) if self._xla else make
        return SampleBatch(*in_graph(given))

    def run_made(self, batch: SampleBatch, stop: tf.Tensor) -> StepResult:
        """Do the step on a batch that was made, whose weights say how many samples count."""
        batch = mean_over_counted(batch)
        return self.run(batch.columns, batch.labels, stop, None, batch.weights)

    def run_alone(
        self, columns: dict[str, tf.Tensor], labels: tf.Tensor, sample_weight: tf.Tensor | None
    ) -> tuple[StepResult, tf.Tensor]:
        """Train on this rank's rows, any number of them, without knowing those of other ranks.

        Returns:
            The result, and the mean number per rank of samples that count.
        """
        counted = counted_samples(labels, sample_weight)
        mean_counted = average(counted, "samples", self.ranks)
        never = tf.constant(False)
        if self.ranks.size == 1:
            one = tf.constant(1.0)
            return self.run(columns, labels, never, one, sample_weight), mean_counted
        share = tf.math.divide_no_nan(counted, mean_counted)
        filled = at_least_one_row((columns, labels, sample_weight), tf.shape(labels)[0])
        result = self.run(filled[0], filled[1], never, share, filled[2])
        return result._replace(logits=result.logits[: tf.size(labels)]), mean_counted

    def run(
        self,
        columns: dict[str, tf.Tensor],
        labels: tf.Tensor,
        stop: tf.Tensor,
        share: tf.Tensor | None = None,
        sample_weight: tf.Tensor | None = None,
    ) -> StepResult:
        """Do the step.

        Args:
            columns: the batch.
            labels: [rows], or [users, candidates] where a row has several samples.
            stop: whether this rank was asked to stop; every rank learns of it.
            share: this rank's samples that count over the mean number of them per rank: 1 but in
                batches of which ranks have different numbers, as the last of an epoch. None where
                only the weights show: the ranks exchange them.
            sample_weight: like ``labels``; None counts every sample once.
        """
        counted = counted_samples(labels, sample_weight)
        if share is None:  # known before the forward pass is done, which does not wait for it
            share = tf.math.divide_no_nan(counted, average(counted, "samples", self.ranks))
        counted = tf.where(share > 0.0, counted, 0.0)
        with batch_that_may_be_filler(share > 0.0):
            gradients, losses, logits = self.gradients(columns, labels, share, sample_weight)
        if self.ranks.size > 1:
            if self._table_gradient is TableGradient.ROW_FOR_EACH_ID:  # fewer rows to send
                gradients = [added_up(gradient) for gradient in gradients]
            gradients = [
                gradient if i in self.own else without_filler(gradient, share > 0.0)
                for i, gradient in enumerate(gradients)
            ]
        _, own_finite = self.loss_scale.unscale([gradients[i] for i in sorted(self.own)])
        overflow = 1.0 - tf.cast(own_finite, tf.float32)  # in gradients that only this rank has
        sums = tf.concat([losses, [tf.cast(stop, tf.float32), counted, overflow]], axis=0)
        gradients, sums = average_gradients(
            gradients, sums, self.ranks, self.fp16_compression, self.dense_tables, self.own
        )
        gradients, finite = self.loss_scale.unscale(gradients)
        finite &= sums[-1] == 0  # as every rank sees it, in gradients that only one has too
        if not self.loss_scale.active:
            self._apply(gradients)
        elif self._one_program:
            self._apply_and_choose(gradients, finite)
        else:
            tf.cond(finite, lambda: self._apply(gradients), lambda: tf.constant(False))
        self.loss_scale.update(finite)
        samples = sums[-2] * self.ranks.size
        flat = SampleBatch(columns, labels, sample_weight).flat()
        return StepResult(sums[:-3], sums[-3] > 0, finite, logits, samples, *flat)

    def _compute_gradients(
        self,
        columns: dict[str, tf.Tensor],
        labels: tf.Tensor,
        share: tf.Tensor,
        sample_weight: tf.Tensor | None,
    ) -> tuple[list[Gradient], tf.Tensor, tf.Tensor]:
        form, fuses = table_gradients(self._table_gradient), fused_arithmetic(self.fuses)
        with form, fuses, tf.GradientTape() as tape:
            losses, logits = self.model.compute_step(columns, labels, sample_weight, training=True)
            scaled = losses[0] * share * self.loss_scale.scale
        gradients = tape.gradient(
            scaled,
            self.model.trainable_variables,
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        return gradients, tf.stack(list(losses)) * share, tf.reshape(logits, [-1])

    def _apply(self, gradients: list[Gradient]) -> tf.Tensor:
        variables = self.model.trainable_variables
        if any(getattr(self.optimizer, clip, None) is not None for clip in CLIPS):
            gradients = [added_up(gradient) for gradient in gradients]  # Keras clips each row

        def apply() -> None:
            # False: they are averaged over ranks already, and Keras knows of no others.
            self.optimizer.apply_gradients(
                zip(gradients, variables, strict=True), experimental_aggregate_gradients=False
            )

        if self.scaled_rows is None:
            apply()
        else:
            every_row = getattr(self.optimizer, "moves_every_row", True)
            self.scaled_rows.while_applied(variables, gradients, apply, every_row)
        return tf.constant(True)

    def _apply_and_choose(self, gradients: list[Gradient], finite: tf.Tensor) -> None:
        """Apply gradients, and take it all back by a choice of values where one is not finite."""
        state = [*self.model.trainable_variables, *self.optimizer.variables]
        before = [tf.identity(variable) for variable in state]
        with tf.control_dependencies(before):
            self._apply(gradients)
        for variable, was in zip(state, before, strict=True):
            variable.assign(tf.where(finite, variable, was))


def counted_samples(labels: tf.Tensor, sample_weight: tf.Tensor | None) -> tf.Tensor:
    """Return how many samples of a batch count: in one of users x candidates, all but fillers.

    >>> float(counted_samples(tf.zeros([2, 2]), tf.constant([[1.0, 1.0], [1.0, 0.0]])))
    3.0

    Args:
        labels: [rows], or [users, candidates] where a row has several samples.
        sample_weight: like ``labels``, 0 for a filler; of plain rows every row counts.
    """
    if labels.shape.rank == 2 and sample_weight is not None:
        return tf.math.count_nonzero(sample_weight, dtype=tf.float32)
    return tf.cast(tf.size(labels), tf.float32)


def batch_spec(tensors: Any) -> Any:
    """Describe tensors with any number of rows: one graph serves full and last batches."""

    def spec(tensor: tf.Tensor) -> tf.TensorSpec:
        rows = [None] if tensor.shape.rank else []
        return tf.TensorSpec([*rows, *tensor.shape[1:]], tensor.dtype)

    return tf.nest.map_structure(spec, tensors)


def at_least_one_row(tensors: Any, rows: tf.Tensor) -> Any:
    """Give dense tensors without rows one of zeros, within a graph, where ``rows`` may be 0."""
    lacking = tf.maximum(0, 1 - rows)

    def fill(tensor: tf.Tensor | None) -> tf.Tensor | None:
        if tensor is None:
            return None
        return tf.pad(tensor, [[0, lacking], *[[0, 0]] * (tensor.shape.rank - 1)])

    return tf.nest.map_structure(fill, tensors)
