"""The optimizer that ``compile`` is given, as the training step takes it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..foundation.exceptions import MerlinSimError
from .optimizers import CLASSES


def find_optimizer(given: Any, variables: list[tf.Variable]) -> Any:
    """Turn what ``compile`` was given into a Keras optimizer, with its moments.

    Args:
        given: a name in :data:`~merlin_sim.steps.optimizers.CLASSES`, which gives ours; else what
            Keras takes: another name, a configuration, any Keras optimizer.
        variables: what it will train.

    Raises:
        MerlinSimError: for an optimizer that averages over ranks or scales losses by itself: the
            training step does both, whatever the optimizer.
    """
    if isinstance(given, str) and given.lower() in CLASSES:
        given = CLASSES[given.lower()]()
    optimizer = tf.keras.optimizers.get(given, use_legacy_optimizer=True)
    scaling = tf.keras.mixed_precision.LossScaleOptimizer
    wrapped = isinstance(optimizer, scaling) or hasattr(optimizer, "inner_optimizer")
    if wrapped or type(optimizer).__module__.startswith("horovod"):
        raise MerlinSimError(
            "`optimizer` should be a plain Keras optimizer: the training step averages gradients "
            "over ranks and scales the loss in mixed_float16 itself. "
            f"Received: {type(optimizer).__name__} of {type(optimizer).__module__}."
        )
    if isinstance(optimizer, tf.keras.optimizers.legacy.Optimizer):
        optimizer._create_all_weights(variables)  # a skipped step must not be where they are made
    else:
        optimizer.build(variables)
    return optimizer
