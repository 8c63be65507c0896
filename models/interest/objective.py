"""What a model's forward pass gives, and the losses it is trained on."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ..blocks.heads.losses import auxiliary_loss, binary_cross_entropy
from ..blocks.recurrence.auxiliary_network import AuxiliaryLogits
from ..evaluated_loss import EvaluatedLoss


class BlockOutputs(NamedTuple):
    """What a block makes of a batch; without the objective the hidden layer alone."""

    hidden: tf.Tensor
    """The last hidden layer, of which the evaluated logit is made: [samples, dim]."""

    stage_one_logits: tf.Tensor | None = None
    """SIM's first stage: [samples, 1], float32."""

    auxiliary: AuxiliaryLogits | None = None
    """DIEN's auxiliary network, within SIM too."""

    @property
    def has_inner_losses(self) -> bool:
        """Whether the objective has losses beside that of the evaluated logit."""
        return self.stage_one_logits is not None or self.auxiliary is not None


class Outputs(NamedTuple):
    """What a forward pass gives; at inference the logits alone."""

    logits: tf.Tensor
    """The logit that is evaluated: [samples, 1], float32; a user's candidates follow each other."""

    stage_one_logits: tf.Tensor | None = None
    """SIM's first stage: [samples, 1], float32."""

    auxiliary: AuxiliaryLogits | None = None
    """DIEN's auxiliary network, within SIM too."""


class StepLosses(NamedTuple):
    """The published objective of one batch; each a float32 scalar."""

    total_loss: tf.Tensor
    """What is minimised: the sum of the other two, and what tables are regularised by."""

    classification_loss: tf.Tensor
    """Binary cross-entropy; of SIM's two stages, the mean of both."""

    dien_aux_loss: tf.Tensor
    """DIEN's auxiliary loss; 0 for a model without it."""


EVALUATED_SHARE = 0.5
"""Weight of the evaluated logit's cross-entropy beside a first stage; the first has the rest."""

PUBLISHED = EvaluatedLoss()
"""Binary cross-entropy, with its published weight."""


def evaluated_share(outputs: Outputs | BlockOutputs) -> float:
    """Return the weight of the evaluated logit's loss in the published objective."""
    return 1.0 if outputs.stage_one_logits is None else EVALUATED_SHARE


def inner_losses(
    outputs: Outputs | BlockOutputs, labels: tf.Tensor, sample_weight: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the losses beside the evaluated logit's: stage one's weighted share, and auxiliary."""
    stage_one = auxiliary = tf.constant(0.0)
    if outputs.stage_one_logits is not None:
        cross_entropy = binary_cross_entropy(labels, outputs.stage_one_logits, sample_weight)
        stage_one = (1.0 - EVALUATED_SHARE) * cross_entropy
    if outputs.auxiliary is not None:
        auxiliary = auxiliary_loss(outputs.auxiliary, sample_weight)
    return stage_one, auxiliary


def step_losses(
    outputs: Outputs,
    labels: tf.Tensor,
    sample_weight: tf.Tensor | None = None,
    evaluated: EvaluatedLoss = PUBLISHED,
) -> StepLosses:
    """Return the objective of a batch, the published one unless ``evaluated`` is another.

    Args:
        outputs: What the forward pass gave, ``with_objective``.
        labels: One for each sample: [users, candidates], [rows] or [rows, 1].
        sample_weight: Of the same shape; None counts every sample once.
        evaluated: The loss of the evaluated logit.
    """
    weight = evaluated_share(outputs) if evaluated.weight is None else evaluated.weight
    stage_one, auxiliary = inner_losses(outputs, labels, sample_weight)
    classification = weight * evaluated.cost(labels, outputs.logits, sample_weight) + stage_one
    return StepLosses(classification + auxiliary, classification, auxiliary)
