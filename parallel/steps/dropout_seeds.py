"""Dropout that depends on the seed, the step and the rank only, so that a resume repeats it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


class DropoutSeeds:
    """Reseeds the random generators of a model's layers, within the graph of a step.

    Keras makes such generators only after :func:`prepare`; without dropout there are none and
    nothing is done. Ranks drop different units.
    """

    def __init__(self, layers: Sequence[tf.Module], rank: int) -> None:
        self._rank = rank
        self._generators = [
            generator
            for whole in layers
            for layer in (whole, *whole.submodules)
            if isinstance(generator := _generator(layer), tf.random.Generator)
        ]

    @staticmethod
    def prepare() -> None:
        """Make Keras use generators in the layers that are built from now on."""
        tf.keras.backend.experimental.enable_tf_random_generator()

    def start_step(self, seed: tf.Tensor, step: tf.Tensor) -> None:
        """Set every generator to what a step uses."""
        for index, generator in enumerate(self._generators):
            key = tf.constant([self._rank, index], tf.int64)
            pair = tf.random.experimental.stateless_fold_in(tf.stack([seed, step]), key[0])
            folded = tf.random.experimental.stateless_fold_in(pair, key[1])
            generator.reset_from_key_counter(folded[0], tf.stack([folded[1], tf.zeros_like(step)]))


def _generator(layer: Any) -> Any:
    random = getattr(layer, "_random_generator", None)
    if random is None:
        return None
    random._maybe_init()  # Keras would make it within the first step
    return random._generator
