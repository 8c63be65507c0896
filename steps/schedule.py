"""How the learning rate goes: up from 0, constant, down to 0."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class WarmUpAndDecay(tf.keras.optimizers.schedules.LearningRateSchedule):
    """DLRM's schedule, for any model: linear warm-up, constant, polynomial decay.

        rate(step) = rate * step / warmup_steps                  while step < warmup_steps
        rate(step) = rate * ((end - step) / decay_steps) ** power   from decay_start_step on

    with end = decay_start_step + decay_steps, from which on the rate is 0. Steps count from 0.

    >>> schedule = WarmUpAndDecay(24.0, warmup_steps=4, decay_start_step=6, decay_steps=2)
    >>> [float(schedule(step)) for step in range(9)]
    [0.0, 6.0, 12.0, 18.0, 24.0, 24.0, 24.0, 6.0, 0.0]

    Args:
        rate: The rate between warm-up and decay.
        warmup_steps: How many steps it takes to get there; 0 for none.
        decay_start_step: With which step the decay begins; None for never.
        decay_steps: How many steps the decay takes.
        decay_power: Of the decay.
    """

    def __init__(
        self,
        rate: float,
        warmup_steps: int = 0,
        decay_start_step: int | None = None,
        decay_steps: int | None = None,
        decay_power: float = 2.0,
    ) -> None:
        """Store the arguments."""
        super().__init__()
        self.rate = rate
        self.warmup_steps = warmup_steps
        self.decay_start_step = decay_start_step
        self.decay_steps = decay_steps
        self.decay_power = decay_power

    def __call__(self, step: Any) -> tf.Tensor:
        """Return the rate of a step, float32."""
        step = tf.cast(step, tf.float32)
        factor = tf.constant(1.0)
        if self.decay_start_step is not None and self.decay_steps is not None:
            end = float(self.decay_start_step + self.decay_steps)
            left = tf.clip_by_value((end - step) / self.decay_steps, 0.0, 1.0)
            factor = tf.pow(left, self.decay_power)
        if self.warmup_steps:
            factor *= tf.minimum(step / self.warmup_steps, 1.0)
        return self.rate * factor

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the schedule."""
        return {
            "rate": self.rate,
            "warmup_steps": self.warmup_steps,
            "decay_start_step": self.decay_start_step,
            "decay_steps": self.decay_steps,
            "decay_power": self.decay_power,
        }
