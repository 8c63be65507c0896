"""The compiled forward pass of a model over data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ...dataloader.loader import Loader
from ...foundation.cores import count_cores
from ...models.blocks.shapes import Size
from ...models.row_parts import MOST_POSITIONS, MOST_ROWS, ROWS_PER_PART, in_parts
from ...parallel.steps.fused import MANY_SAMPLES, fused_arithmetic
from ...parallel.steps.sample_batch import SampleBatch
from ...parallel.steps.train_step import batch_spec
from .scored_rows import Array


class ScoredBatch(NamedTuple):
    """The scores of the samples of a batch that count, [samples] each."""

    scores: Array
    labels: Array
    columns: dict[str, Array]


class Predictor:
    """The compiled forward pass of a model: columns to click probabilities, [samples], float32.

    A row has one sample or, of users x candidates, one after the other. Large batches may be
    computed in ``parts`` side by side, which keeps the cores busy where operations are not shared
    between them.
    """

    def __init__(self, model: Any, xla: bool = False, parts: bool = False) -> None:
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

    def of_given(self, given: Any, feed: Loader, keep: Sequence[str] = ()) -> ScoredBatch:
        """Predict a batch that a feed makes of what it gives, within the compiled function.

        ``given`` has the same shapes in every step; columns to keep are [rows] or [rows,
        candidates].
        """
        compiled = self._of_given.get((feed.make, *keep))
        if compiled is None:
            make = feed.make
            samples = feed.batch_size * getattr(feed, "candidates", 1)
            fuses = samples >= MANY_SAMPLES and not self.xla

            def predict(given: Any) -> tuple[tf.Tensor, ...]:
                batch = SampleBatch(*make(given))
                kept = [batch.column(name) for name in keep]
                with fused_arithmetic(fuses):  # all batches have one shape
                    scores = self._run(batch.columns, fuses)
                return (scores, *batch.flat(), *kept)

            compiled = tf.function(
                predict,
                input_signature=None if self.xla else [batch_spec(given)],
                jit_compile=self.xla or None,
                autograph=False,
            )
            self._of_given[(feed.make, *keep)] = compiled
        scores, labels, weights, *kept = (found.numpy() for found in compiled(given))
        counts = weights != 0
        columns = {name: values[counts] for name, values in zip(keep, kept, strict=True)}
        return ScoredBatch(scores[counts], labels[counts], columns)

    def _run(self, columns: dict[str, tf.Tensor], fuses: bool = False) -> tf.Tensor:
        if not self.parts:
            logits = self._logits(columns)
        else:
            rows = tf.shape(next(iter(columns.values())))[0]
            most = self._rows_of_a_part(columns, rows, fuses)
            logits = in_parts(self._logits, columns, most)
        return tf.sigmoid(tf.reshape(logits, [-1]))

    def _rows_of_a_part(self, columns: dict[str, tf.Tensor], rows: tf.Tensor, fuses: bool) -> Size:
        """Return how many rows a part has at most: a part for each core, of fused arithmetic."""
        samples = self._samples_of_a_row(columns)
        least = max(1, ROWS_PER_PART // samples)
        if not fuses:
            return least
        cores = count_cores()
        positions = max([1, *(c.shape[1] or 1 for c in columns.values() if c.shape.rank == 2)])
        most = max(least, min(MOST_ROWS // samples, MOST_POSITIONS // (positions * cores)))
        return tf.clip_by_value((rows + cores - 1) // cores, least, most)

    def _logits(self, columns: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.cast(self.model.forward(columns).logits, tf.float32)

    def _samples_of_a_row(self, columns: dict[str, tf.Tensor]) -> int:
        """Return how many candidates a user has in the batch; 1 where that is not known."""
        targets = getattr(getattr(self.model, "channels", None), "target_item", ())
        target = columns.get(targets[0]) if targets else None
        return int(target.shape[1] or 1) if target is not None and target.shape.rank == 2 else 1
