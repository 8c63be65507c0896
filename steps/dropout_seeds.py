"""Dropout that depends on the seed, the step and the rank only, so that a resume repeats it."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import tensorflow as tf


class DropoutSeeds:
    """Reseeds the random generators of a model's layers.

    Keras makes such generators only after :func:`prepare`; without dropout there are none and
    nothing is done.

    Args:
        model: its layers are searched for generators.
        seed: the run's.
        rank: ranks drop different units.
    """

    def __init__(self, model: tf.Module, seed: int, rank: int) -> None:
        """Find the generators."""
        self._key = seed
        self._rank = rank
        self._generators = [
            generator
            for layer in model.submodules
            if isinstance(generator := _generator(layer), tf.random.Generator)
        ]

    @staticmethod
    def prepare() -> None:
        """Make Keras use generators in the layers that are built from now on."""
        tf.keras.backend.experimental.enable_tf_random_generator()

    def start_step(self, steps: int) -> None:
        """Set every generator to what this step uses."""
        for index, generator in enumerate(self._generators):
            generator.reset_from_seed(_hashed(self._key, steps, self._rank, index))


def _hashed(*numbers: int) -> int:
    """Scatter numbers over 31 bits; Python's own ``hash`` may differ between its versions."""
    digest = blake2b(repr(numbers).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") & 0x7FFFFFFF


def _generator(layer: Any) -> Any:
    random = getattr(layer, "_random_generator", None)
    if random is None:
        return None
    random._maybe_init()  # Keras would make it within the first step
    return random._generator
