"""Loss scaling for float16 gradients, dynamic or static (https://arxiv.org/abs/1710.03740)."""

from __future__ import annotations

import tensorflow as tf

from ..ranks.collectives import Gradient, on_values

INITIAL_SCALE = 2.0**15
GROWTH_STEPS = 2000


class LossScale(tf.__internal__.tracking.AutoTrackable):
    """Scales the loss up so that small gradients survive float16.

    The order matters with several ranks: the loss is scaled, gradients are averaged over ranks
    while scaled, and only what came out of the averaging is looked at. An overflow on one rank
    makes the average infinite or NaN on all, so that all skip the step and halve the scale.
    Keras's checkpoints of a model keep its state, as they keep an optimizer's.

    Args:
        active: False for float32, where the scale is 1 and nothing is ever skipped.
        static: A scale that stays as it is; None for a dynamic one.
    """

    def __init__(self, active: bool, static: float | None = None) -> None:
        super().__init__()
        self.active = active
        self.is_static = static is not None
        initial = (static or INITIAL_SCALE) if active else 1.0
        self.scale = tf.Variable(initial, dtype=tf.float32, trainable=False, name="loss_scale")
        self.good_steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="good_steps")

    @property
    def variables(self) -> list[tf.Variable]:
        """The state that a checkpoint keeps."""
        return [self.scale, self.good_steps]

    def unscale(self, gradients: list[Gradient]) -> tuple[list[Gradient], tf.Tensor]:
        """Divide averaged gradients by the scale; say whether all of them are finite."""
        if not self.active or not gradients:
            return gradients, tf.constant(True)
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(_values(g))) for g in gradients])
        factor = 1.0 / self.scale
        return [on_values(gradient, lambda v: v * factor) for gradient in gradients], finite

    def update(self, finite: tf.Tensor) -> None:
        """Halve the scale after an overflow, double it after :data:`GROWTH_STEPS` good steps."""
        if not self.active or self.is_static:
            return
        good = tf.where(finite, self.good_steps + 1, 0)
        grown = good >= GROWTH_STEPS
        scale = tf.where(finite, self.scale, tf.maximum(self.scale / 2.0, 1.0))
        self.scale.assign(tf.where(grown, scale * 2.0, scale))
        self.good_steps.assign(tf.where(grown, tf.zeros_like(good), good))


def _values(gradient: Gradient) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
