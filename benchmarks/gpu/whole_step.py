"""A training step as XLA makes one program of it for a GPU: the one that ``fit`` traces there.

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
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.training.evaluation.metrics import AUC

POSITIONS, LENGTH = 8, 100
Step = Callable[[Any], Any]


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
        trained.compile("adam", metrics=[AUC()], jit_compile=True)
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
        step = trained.step_on(loader)
    done, stop = tf.zeros([2], tf.int64), tf.constant(False)
    return lambda given: step(given, done, stop), given


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
