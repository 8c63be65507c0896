"""The published objective of a block in a Merlin model of one's own.

``mm.Model`` gives a block the labels of a batch and adds the block's losses to that of the output.
It gives no block the sample weights, and no block can say how much the output's loss counts. Both
pass through here: :func:`join_step` returns the weights, and Merlin's ``call_train_test``, which
hands predictions and weights to the loss, gives the output its share.
"""

from __future__ import annotations

import functools
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from merlin.models.tf.models.base import BaseModel

from ..blocks.checks import OptionError


@dataclass
class ComposedStep:
    """One batch of a Merlin model's ``fit`` or ``evaluate``."""

    sample_weight: Any
    """As the batch has it; None counts every sample once."""

    shares: dict[str, float] = field(default_factory=dict)
    """By label, the weight of the output's loss beside those that a block adds."""


_current: ContextVar[ComposedStep | None] = ContextVar("composed_step", default=None)


def join_step(label: str, share: float) -> tf.Tensor | None:
    """Return the weights of the samples in this step, for the losses that a block adds.

    Args:
        label: The column that the block's losses are about.
        share: The weight of the loss of the output with this label, unless ``compile`` was given
            ``loss_weights``.
    """
    step = _current.get()
    if step is None:  # the block is called in a loop of one's own, which adds up losses itself
        return None
    step.shares[label] = share
    return step.sample_weight


def weigh_composed_models() -> None:
    """Have Merlin's models tell blocks the sample weights, and give outputs their shares."""
    merlins = BaseModel.call_train_test
    if getattr(merlins, "weighs_blocks", False):
        return

    @functools.wraps(merlins)
    def call_train_test(
        self: Any, x: Any, y: Any = None, sample_weight: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        step = ComposedStep(sample_weight)
        token = _current.set(step)
        try:
            outputs = merlins(self, x, y, sample_weight, *args, **kwargs)
        finally:
            _current.reset(token)
        return _weighed(self, outputs, step) if step.shares else outputs

    call_train_test.weighs_blocks = True  # type: ignore[attr-defined]
    BaseModel.call_train_test = call_train_test


def _weighed(model: Any, outputs: Any, step: ComposedStep) -> Any:
    """Give the loss of each output that a block's losses stand beside its share."""
    weights, targets = outputs.sample_weight, outputs.targets
    if not isinstance(weights, dict):  # the one output of a model of Merlin's older kind
        (task,) = model.prediction_tasks
        weighed = _of_output(model, task.target_name, weights, targets, step)
        return outputs.copy_with_updates(sample_weight=weighed)
    labels = {output.full_name: output.target for output in model.model_outputs}
    labels |= {task.task_name: task.target_name for task in model.prediction_tasks}
    return outputs.copy_with_updates(
        sample_weight={
            name: _of_output(model, labels[name], weight, targets[name], step)
            for name, weight in weights.items()
        }
    )


def _of_output(model: Any, label: str | None, weight: Any, target: Any, step: ComposedStep) -> Any:
    known = label if label is not None or len(step.shares) > 1 else next(iter(step.shares))
    share = step.shares.get(known or "")
    if share is None:
        return weight
    if weight is not step.sample_weight:
        raise OptionError(
            f"The output of {known!r} should leave sample weights as they are: the block's own "
            "losses would lack the ones that it makes. Give them with the batches, as "
            "(columns, labels, sample weights)."
        )
    if share == 1.0 or model.compiled_loss._user_loss_weights is not None:
        return weight
    return share * (tf.ones_like(target) if weight is None else tf.cast(weight, target.dtype))
