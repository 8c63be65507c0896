"""What a model's forward pass gives, and the losses it is trained on."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from .blocks.auxiliary_network import AuxiliaryLogits
from .blocks.losses import auxiliary_loss, binary_cross_entropy


class Outputs(NamedTuple):
    """What a forward pass gives; at inference the logits alone."""

    logits: tf.Tensor
    """The logit that is evaluated: [batch, 1], float32."""

    stage_one_logits: tf.Tensor | None = None
    """SIM's first stage: [batch, 1], float32."""

    auxiliary: AuxiliaryLogits | None = None
    """DIEN's auxiliary network, within SIM too."""


class StepLosses(NamedTuple):
    """The published objective of one batch; each a float32 scalar."""

    total_loss: tf.Tensor
    """What is minimised: the sum of the other two."""

    classification_loss: tf.Tensor
    """Binary cross-entropy; of SIM's two stages, the mean of both."""

    dien_aux_loss: tf.Tensor
    """DIEN's auxiliary loss; 0 for a model without it."""


EVALUATED_SHARE = 0.5
"""Weight of the evaluated logit's cross-entropy beside a first stage; the first has the rest."""


def evaluated_share(outputs: Outputs) -> float:
    """Return the weight of the evaluated logit's cross-entropy."""
    return 1.0 if outputs.stage_one_logits is None else EVALUATED_SHARE


def inner_losses(
    outputs: Outputs, labels: tf.Tensor, sample_weight: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the losses beside the evaluated logit's: stage one's weighted share, and auxiliary."""
    stage_one = auxiliary = tf.constant(0.0)
    if outputs.stage_one_logits is not None:
        cross_entropy = binary_cross_entropy(labels, outputs.stage_one_logits, sample_weight)
        stage_one = (1.0 - evaluated_share(outputs)) * cross_entropy
    if outputs.auxiliary is not None:
        auxiliary = auxiliary_loss(outputs.auxiliary, sample_weight)
    return stage_one, auxiliary


def step_losses(
    outputs: Outputs, labels: tf.Tensor, sample_weight: tf.Tensor | None = None
) -> StepLosses:
    """Return the published objective of a batch.

    Args:
        outputs: What the forward pass gave, ``with_objective``.
        labels: [batch] or [batch, 1].
        sample_weight: [batch] or [batch, 1]; None counts every sample once.
    """
    stage_one, auxiliary = inner_losses(outputs, labels, sample_weight)
    evaluated = binary_cross_entropy(labels, outputs.logits, sample_weight)
    classification = evaluated_share(outputs) * evaluated + stage_one
    return StepLosses(classification + auxiliary, classification, auxiliary)


class LossMeans:
    """The parts of the objective, each averaged over an epoch's batches.

    A plain object, so that Keras does not count the means' variables among a model's weights.
    """

    def __init__(self) -> None:
        """Make the means, empty."""
        names = [name for name in StepLosses._fields if name != "total_loss"]
        self.means = [tf.keras.metrics.Mean(name) for name in names]

    def update(self, losses: StepLosses, rows: tf.Tensor) -> None:
        """Count a batch of ``rows`` samples."""
        for mean in self.means:
            mean.update_state(getattr(losses, mean.name), sample_weight=rows)
