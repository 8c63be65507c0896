"""Objectives: the published one or a loss of one's own, and what is reported of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf
from merlin.models.tf.losses import loss_registry

from .blocks.checks import OptionError
from .blocks.recurrence import AuxiliaryLogits

PROBABILITY_EPSILON = 1e-6
"""What the published implementation adds to the auxiliary probabilities."""


def binary_cross_entropy(
    labels: tf.Tensor, logits: tf.Tensor, sample_weight: tf.Tensor | None = None
) -> tf.Tensor:
    """Return the mean binary cross-entropy over the batch.

    >>> round(float(binary_cross_entropy(tf.constant([1.0]), tf.constant([[0.0]]))), 6)
    0.693147

    Args:
        labels: One for each sample, in any shape: [samples], [users, candidates].
        logits: [samples, 1].
        sample_weight: One for each sample; None counts every sample once.
    """
    logits = tf.cast(logits, tf.float32)
    labels = tf.reshape(tf.cast(labels, tf.float32), tf.shape(logits))
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    if sample_weight is not None:
        losses *= tf.reshape(tf.cast(sample_weight, tf.float32), tf.shape(logits))
    return tf.reduce_mean(losses)


def auxiliary_loss(logits: AuxiliaryLogits, sample_weight: tf.Tensor | None = None) -> tf.Tensor:
    """Return the auxiliary loss of DIEN's interest extractor (https://arxiv.org/abs/1809.03672).

        mean over all positions of mask x (-log p_click - log(1 - p_noclick)),
        p = sigmoid(logit) + 1e-6

    The published ``1 - p_noclick`` falls below 0, and its logarithm is NaN, once
    sigmoid(-logit) < 1e-6. With s = softplus(logit) = -log sigmoid(-logit) the term is

        s - log(1 - 1e-6 exp(s))

    and here 1e-6 exp(s) is held at 1/2: the published value wherever sigmoid(-logit) > 2e-6, and
    beyond that a line with slope 1 in the logit, so that the worst mistakes still have a gradient.
    """
    click_logits = tf.cast(logits.click, tf.float32)
    noclick_logits = tf.cast(logits.noclick, tf.float32)
    click = -tf.math.log(tf.sigmoid(click_logits) + PROBABILITY_EPSILON)
    negative_log = tf.math.softplus(noclick_logits)
    # The minimum is inside the exponential, where it keeps infinities out of the gradient too.
    ceiling = -tf.math.log(2.0 * PROBABILITY_EPSILON)
    noclick = negative_log - tf.math.log1p(
        -PROBABILITY_EPSILON * tf.exp(tf.minimum(negative_log, ceiling))
    )
    losses = tf.cast(logits.mask, tf.float32) * (click + noclick)  # [samples, short - 1]
    if sample_weight is not None:
        losses *= tf.reshape(tf.cast(sample_weight, tf.float32), [-1, 1])
    # A history of one position has no next one: 0 / 1, not 0 / 0.
    return tf.math.divide_no_nan(tf.reduce_sum(losses), tf.cast(tf.size(losses), tf.float32))


Loss = Callable[[tf.Tensor, tf.Tensor, tf.Tensor | None], tf.Tensor]
"""From labels, logits, [batch, 1], and weights (or None) to a scalar."""


@dataclass(frozen=True)
class EvaluatedLoss:
    """Loss of the evaluated logit, and its weight in the objective."""

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


class Outputs(NamedTuple):
    """Outputs of a forward pass, a block's and a model's; at inference hidden layer and logits."""

    hidden: tf.Tensor
    """The last hidden layer, of which the evaluated logit is made: [samples, dim]."""
    stage_one_logits: tf.Tensor | None = None
    """SIM's first stage: [samples, 1], float32."""
    auxiliary: AuxiliaryLogits | None = None
    """DIEN's auxiliary network, within SIM too."""
    logits: tf.Tensor | None = None
    """The logit that is evaluated, which a model makes: [samples, 1], float32; a user's candidates
    follow each other."""


class TotalLoss(NamedTuple):
    """The objective of one batch, of a model that has a single one."""

    total_loss: tf.Tensor
    """What is minimised, what tables are regularised by included: a float32 scalar."""


class StepLosses(NamedTuple):
    """The published objective of one batch; each a float32 scalar."""

    total_loss: tf.Tensor
    """What is minimised: the sum of the other two, and what tables are regularised by."""
    classification_loss: tf.Tensor
    """Binary cross-entropy; of SIM's two stages, the mean of both."""
    dien_aux_loss: tf.Tensor
    """DIEN's auxiliary loss; 0 for a model without it."""


EVALUATED_SHARE = 0.5
"""Weight of the evaluated logit's cross-entropy where a first stage has the rest."""

PUBLISHED = EvaluatedLoss()
"""Binary cross-entropy, with its published weight."""


def evaluated_share(outputs: Outputs) -> float:
    """Return the weight of the evaluated logit's loss in the published objective."""
    return 1.0 if outputs.stage_one_logits is None else EVALUATED_SHARE


def inner_losses(
    outputs: Outputs, labels: tf.Tensor, sample_weight: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the losses of other logits: stage one's weighted share, and auxiliary."""
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
    """Return the objective of a batch, the published one unless ``evaluated`` is another."""
    weight = evaluated_share(outputs) if evaluated.weight is None else evaluated.weight
    stage_one, auxiliary = inner_losses(outputs, labels, sample_weight)
    classification = weight * evaluated.cost(labels, outputs.logits, sample_weight) + stage_one
    return StepLosses(classification + auxiliary, classification, auxiliary)


MASKED = -1e9
"""The logit of an item that is left out of a softmax; its exponential is 0."""


def sampled_softmax_loss(
    logits: tf.Tensor,
    items: tf.Tensor,
    log_chances: tf.Tensor,
    weights: tf.Tensor,
) -> tf.Tensor:
    """Return the mean over clicked rows of -log p(own item), all rows' items being the sample.

    A row of item 0 is none: it is there so that all batches are equally long.

        p(i) = exp(s(u, i) - log Q(i)) / sum over j of the batch exp(s(u, j) - log Q(j))

    The items of a batch are drawn by their popularity Q: without the correction
    (https://doi.org/10.1145/3298689.3346996, equation 3) a popular item would be pushed away as
    often as it is drawn. Other rows with the own item are left out: they are no mistakes.

    >>> logits = tf.math.log(tf.constant([[2.0, 1.0], [1.0, 1.0]]))
    >>> chances = tf.math.log(tf.constant([0.5, 0.25]))
    >>> loss = sampled_softmax_loss(logits, tf.constant([7, 9]), chances, tf.constant([1.0, 0.0]))
    >>> round(float(tf.exp(-loss)), 6)  # 2 / 0.5 over that and 1 / 0.25
    0.5

    Args:
        logits: [rows, rows], of each row's user and each row's item, float32.
        items: [rows] Ids of the items.
        log_chances: [rows] The logarithm of each item's chance to be drawn for a row of the batch.
        weights: [rows] What each row counts: 0 where nothing was clicked.
    """
    same = tf.equal(items[:, tf.newaxis], items[tf.newaxis])
    others = tf.logical_and(same, tf.logical_not(tf.eye(tf.shape(items)[0], dtype=tf.bool)))
    others |= tf.equal(items, 0)[tf.newaxis]
    corrected = tf.where(others, MASKED, logits - log_chances[tf.newaxis])
    own = tf.linalg.diag_part(corrected)
    costs = tf.reduce_logsumexp(corrected, axis=1) - own
    return tf.math.divide_no_nan(tf.reduce_sum(weights * costs), tf.reduce_sum(weights))


class LossMeans:
    """The mean of each loss over an epoch's rows; the first is Keras's ``loss``.

    A plain object, so that Keras does not count the means' variables among a model's weights.

    Args:
        names: of the parts, in the order in which the model gives them.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.means = [tf.keras.metrics.Mean(name) for name in ("loss", *names)]

    def update(self, losses: Sequence[tf.Tensor] | tf.Tensor, rows: tf.Tensor) -> None:
        """Count a batch of ``rows`` samples."""
        for index, mean in enumerate(self.means):
            mean.update_state(losses[index], sample_weight=rows)
