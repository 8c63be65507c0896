"""A forward pass over data: predictions, metrics, latencies."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import tensorflow as tf

from ...dataloader.loader import Loader
from ...foundation.batch_names import HISTORY_END
from ...foundation.ranks import Ranks
from ...models.compiled_metrics import states_over_ranks, variables_of
from ...models.row_parts import ROWS_PER_PART, in_parts
from ...ranks.collectives import any_rank
from ...steps.sample_batch import Make, SampleBatch
from ...steps.train_step import batch_spec
from ..reports.run_log import RunLog
from .metrics import Evaluation, Evaluator
from .sample_places import SamplePlaces
from .scored_rows import Array

AGREE_EVERY = 16
"""Batches between two agreements on whether to stop."""


class ScoredBatch(NamedTuple):
    """What a model said of the samples of a batch that count, [samples] each."""

    scores: Array
    labels: Array
    columns: dict[str, Array]


class Predictor:
    """The compiled forward pass of a model: columns to click probabilities, [samples], float32.

    A row has one sample or, of users x candidates, one after the other.

    Args:
        model: any model of this package.
        xla: compile it with XLA.
        parts: compute large batches in parts side by side, which keeps the cores busy where
            operations are not shared between them.
    """

    def __init__(self, model: Any, xla: bool = False, parts: bool = False) -> None:
        """Wrap the model's forward pass in a graph."""
        self.model = model
        self.xla = xla
        self.parts = parts and not xla  # XLA cannot compile the loop over parts
        self._predict: Any = None
        self._of_given: dict[Any, Any] = {}

    def __call__(self, columns: dict[str, tf.Tensor]) -> tf.Tensor:
        """Predict one batch."""
        if self._predict is None:
            self._predict = tf.function(
                self._run,
                input_signature=[batch_spec(columns)],
                jit_compile=self.xla or None,
                autograph=False,
            )
        return self._predict(columns)

    def of_given(self, given: Any, make: Make, keep: Sequence[str] = ()) -> ScoredBatch:
        """Predict a batch that is made within the compiled function.

        Args:
            given: what a loader gives for the step; of the same shapes in every step.
            make: makes the batch of it, in TensorFlow ops.
            keep: columns to give back, [rows] or [rows, candidates].
        """
        compiled = self._of_given.get((make, *keep))
        if compiled is None:

            def predict(given: Any) -> tuple[tf.Tensor, ...]:
                batch = SampleBatch(*make(given))
                kept = [_of_samples(batch, name) for name in keep]
                return (self._run(batch.columns), *batch.flat(), *kept)

            compiled = tf.function(
                predict,
                input_signature=None if self.xla else [batch_spec(given)],
                jit_compile=self.xla or None,
                autograph=False,
            )
            self._of_given[(make, *keep)] = compiled
        scores, labels, weights, *kept = (found.numpy() for found in compiled(given))
        counts = weights != 0
        columns = {name: values[counts] for name, values in zip(keep, kept, strict=True)}
        return ScoredBatch(scores[counts], labels[counts], columns)

    def _run(self, columns: dict[str, tf.Tensor]) -> tf.Tensor:
        if not self.parts:
            logits = self._logits(columns)
        else:
            most = max(1, ROWS_PER_PART // _windows_of_a_row(columns))
            logits = tf.cond(
                tf.shape(next(iter(columns.values())))[0] > most,
                lambda: in_parts(self._logits, columns, most),
                lambda: self._logits(columns),
            )
        return tf.sigmoid(tf.reshape(logits, [-1]))

    def _logits(self, columns: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.cast(self.model.forward(columns).logits, tf.float32)


def _windows_of_a_row(columns: dict[str, tf.Tensor]) -> int:
    ends = columns.get(HISTORY_END)
    return 1 if ends is None else int(ends.shape[1])


def _of_samples(batch: SampleBatch, name: str) -> tf.Tensor:
    """What a column says of each sample, one user's after the other."""
    values, shape = batch.columns[name], tf.shape(batch.labels)
    if values.shape.rank == 1:
        values = tf.broadcast_to(values[:, tf.newaxis], shape)
    return tf.reshape(values, [-1])


def published_metrics(
    evaluation: Evaluation, metrics: Sequence[str], mapping: str = "test"
) -> dict[str, float | None]:
    """Return metrics under their published names: ``auc`` of test data is ``test_auc``."""
    return {f"{mapping}_{name}": getattr(evaluation, name) for name in metrics}


def evaluate(
    predict: Predictor,
    feed: Loader,
    ranks: Ranks,
    log: RunLog,
    user: str | None = None,
    stopped: Callable[[], bool] = lambda: False,
    alive: Callable[[], None] = lambda: None,
    tells_steps: bool = False,
    title: str = "test",
    places: SamplePlaces | None = None,
    extra: Sequence[tf.keras.metrics.Metric] = (),
) -> tuple[Evaluation, dict[str, float]] | None:
    """Score every sample once and compute the metrics over all ranks.

    Args:
        predict: the model's forward pass.
        feed: this rank's rows.
        ranks: the run.
        log: shows progress.
        user: the column by which GAUC groups; None for no GAUC.
        stopped: whether this rank was asked to stop.
        alive: called with every batch.
        tells_steps: whether the log takes an entry for each step.
        title: what the line of progress is called.
        places: finds the samples in the dataset; the result has every row then, with its place.
        extra: further metrics, of labels and probabilities, [samples, 1].

    Returns:
        The metrics and the further ones by name, or None where a rank was asked to stop.
    """
    evaluator = Evaluator(ranks, keeps_rows=places is not None)
    steps = feed.plan(0).steps
    begin, samples = time.perf_counter(), 0
    before = begin
    item = places.item if places is not None else None
    keep = [name for name in dict.fromkeys((user, item)) if name is not None]
    with log.progress(title, steps) as line, closing(feed.inputs()) as inputs:
        for step, given in enumerate(inputs):
            alive()
            if step % AGREE_EVERY == 0 and any_rank(stopped(), ranks):
                return None
            scores, labels, columns = predict.of_given(given, feed.make, keep)
            evaluator.update(labels, scores, columns[user] if user else None)
            for metric in extra:
                metric.update_state(labels[:, None], scores[:, None])
            if places is not None:
                evaluator.keep_places(places.of_batch(step, given, len(scores), columns))
            samples += len(scores) * ranks.size
            now = time.perf_counter()
            if tells_steps:
                rate = {"samples/s": len(scores) * ranks.size / max(1e-9, now - before)}
                log.write("step", (0, step), epoch=1, step=step + 1, **rate)
            before = now
            line.update(step + 1, f"{samples / (now - begin):,.0f} samples/s")
    for variable, total in zip(variables_of(extra), states_over_ranks(extra), strict=True):
        variable.assign(total)
    found = {metric.name: float(metric.result()) for metric in extra}
    return evaluator.result(with_users=user is not None), found
