"""A training step as one function of TensorFlow, for XLA to make one program of.

From the numbers of samples to the weights: the batch is made of users that are on the device, then
forward pass, gradients, loss scale, the optimizer, the losses and the counts for the AUC.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from rows.user_rows import write_users

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.gpu_forms import gpu_forms
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import build_model
from merlin_sim.parallel.steps.loss_scale import LossScale
from merlin_sim.parallel.steps.optimizers import make_optimizer
from merlin_sim.parallel.steps.sample_batch import SampleBatch, mean_over_counted
from merlin_sim.parallel.steps.table_rows import TableGradient, table_gradients
from merlin_sim.schemas.dataset import DatasetDirectory

BINS = 8000
"""Of scores, in which positives and negatives are counted for the AUC."""
POSITIONS, LENGTH = 8, 100
Step = Callable[[Any], tuple[tf.Tensor, ...]]


def small_dataset(directory: Path, users: int = 1217) -> DatasetDirectory:
    """Write users of full histories, of as many items as the published step was counted with."""
    last = LENGTH + POSITIONS + 1
    sizes = {"items": 11_349, "categories": 241, "drawn_from": users * last}
    return write_users(directory, users, last, LENGTH, **sizes)


def make_step(
    dataset: DatasetDirectory, model: str, batch: int, candidates: int, amp: bool
) -> tuple[Step, Any]:
    """Return the step, and what a loader gives for one of them.

    Args:
        dataset: One row for each user.
        model: A family's name.
        batch: Samples.
        candidates: Samples of a row; 1 for plain rows.
        amp: Whether to compute in float16.
    """
    with policy("mixed_float16" if amp else "float32"), gpu_forms(True):
        trained = build_model(model, dataset.schema)
        loader = open_loader(
            dataset,
            "train",
            list(trained.training_columns),
            batch,
            Ranks(),
            shuffle=True,
            candidates=candidates,
            negatives_read=trained.negatives_read,
        )
        given = next(iter(loader.inputs()))
        make = loader.make_samples
    optimizer = make_optimizer("adam", trained.trainable_variables, 0.01)
    scale = LossScale(amp)

    def step(given: Any) -> tuple[tf.Tensor, ...]:
        made = SampleBatch(*make(given.data, given.entries, given.seeds))
        losses, logits, finite = train_on(mean_over_counted(made), trained, optimizer, scale)
        return losses, finite, counts_of_scores(logits, *made.flat())

    return step, given


def train_on(
    batch: SampleBatch, model: Any, optimizer: Any, scale: LossScale
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Train on a batch; return the losses, the logits, and whether the gradients were finite."""
    variables = model.trainable_variables
    with table_gradients(TableGradient.WHOLE_TABLE), tf.GradientTape() as tape:
        losses, logits = model.compute_step(
            batch.columns, batch.labels, batch.weights, training=True
        )
        scaled = losses[0] * scale.scale
    gradients = tape.gradient(scaled, variables, unconnected_gradients="zero")
    gradients, finite = scale.unscale(gradients)
    state = [*variables, *optimizer.variables]
    before = [tf.identity(variable) for variable in state]
    optimizer.apply_gradients(
        zip(gradients, variables, strict=True), experimental_aggregate_gradients=False
    )
    for variable, was in zip(state, before, strict=True):  # a choice of values: nothing waits
        variable.assign(tf.where(finite, variable, was))
    scale.update(finite)
    return tf.stack(list(losses)), tf.reshape(logits, [-1]), finite


def counts_of_scores(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Count negatives and positives in each bin of scores: [2, bins]."""
    scores = tf.cast(tf.sigmoid(logits) * float(BINS - 1), tf.int32)
    place = scores + BINS * tf.cast(labels > 0, tf.int32)
    return tf.reshape(tf.math.unsorted_segment_sum(weights, place, 2 * BINS), [2, BINS])


def hlo_of(step: Step, given: Any) -> str:
    """Return XLA's program of a step before it is optimized: the same for every device."""
    with gpu_forms(True):
        compiled = tf.function(step, jit_compile=True, autograph=False)
        return str(compiled.experimental_get_compiler_ir(given)(stage="hlo"))


@contextlib.contextmanager
def policy(name: str) -> Iterator[None]:
    """Compute in this precision within the block."""
    before = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(name)
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(before)
