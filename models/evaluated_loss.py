"""The loss that ``compile`` is given for the evaluated logit, in place of the published one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from merlin.models.tf.losses import loss_registry

from .blocks.checks import OptionError
from .blocks.heads.losses import binary_cross_entropy

Loss = Callable[[tf.Tensor, tf.Tensor, tf.Tensor | None], tf.Tensor]
"""From labels, logits, [batch, 1], and weights (or None) to a scalar."""


@dataclass(frozen=True)
class EvaluatedLoss:
    """What the evaluated logit costs, and how much that counts in the objective."""

    cost: Loss = binary_cross_entropy
    """Published: binary cross-entropy of the logit."""
    weight: float | None = None
    """Its factor; None for the published one."""


def read_loss(loss: Any, loss_weights: Any, output: str) -> EvaluatedLoss:
    """Read ``loss`` and ``loss_weights`` as Keras takes them for a model of one output.

    Args:
        loss: None for the published one; else a name, a Keras loss or a function of labels and
            probabilities, or a dictionary or list of one of them.
        loss_weights: None for the published one, or a number, or a dictionary or list of one.
        output: the output's name, the only key that a dictionary may have.

    Raises:
        OptionError: where they are not for that one output.
    """
    chosen = _only_one("loss", loss, output)
    weight = _only_one("loss_weights", loss_weights, output)
    if weight is not None and (isinstance(weight, bool) or not isinstance(weight, int | float)):
        raise OptionError(f"`loss_weights` should be a number. Received: {weight!r}.")
    weight = None if weight is None else float(weight)
    if chosen is None:
        return EvaluatedLoss(weight=weight)
    return EvaluatedLoss(_of_probabilities(chosen), weight)


def _only_one(option: str, given: Any, output: str) -> Any:
    if not isinstance(given, dict | list | tuple):
        return given
    if not given:
        return None
    entries = given if isinstance(given, dict) else dict.fromkeys([output, *range(1, len(given))])
    if list(entries) != [output]:
        raise OptionError(
            f"`{option}` should be for the one output, {output!r}. Received: {given!r}."
        )
    return given[output] if isinstance(given, dict) else given[0]


def _of_probabilities(loss: Any) -> Loss:
    if isinstance(loss, str) and loss in loss_registry:
        loss = loss_registry.parse(loss)
    function = tf.keras.losses.get(loss)

    def cost(
        labels: tf.Tensor, logits: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> tf.Tensor:
        # Keras's activation, by which its cross-entropy finds the logits again.
        probabilities = tf.keras.activations.sigmoid(tf.cast(logits, tf.float32))
        labels = tf.reshape(tf.cast(labels, tf.float32), tf.shape(probabilities))
        if sample_weight is not None:
            sample_weight = tf.reshape(tf.cast(sample_weight, tf.float32), [-1, 1])
        if isinstance(function, tf.keras.losses.Loss):
            return tf.reduce_mean(function(labels, probabilities, sample_weight))
        costs = tf.reshape(function(labels, probabilities), [-1, 1])
        return tf.reduce_mean(costs if sample_weight is None else costs * sample_weight)

    return cost
