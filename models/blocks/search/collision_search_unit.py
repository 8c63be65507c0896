"""SDIM's search, which leaves nothing out: how often positions collide with the candidate."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..checks import OptionError, check_positive
from ..serialization import register_block
from ..shapes import sizes
from .random_projection import RandomProjection
from .search_and_attention import LongHistory, SearchResult, SearchUnit, Target

MOST_BITS = 24
"""Bits of a hash at most: as a number it has to be exact in float32."""


@register_block
class CollisionSearchUnit(SearchUnit):
    """Sampling by hashes (SDIM, https://arxiv.org/abs/2205.10249, section 4).

        hash_j(x) = tau signs of fixed random projections of x,    j = 1..m
        strength_t = how many of the m hashes of h_t are those of e, divided by m

    Two vectors collide in a hash with the probability (1 - angle / pi)^tau, so that strengths
    are an attention's weights without a softmax, and need neither scores nor a top-k. A position is
    selected where it collides at all. Hashes of a history are made once a user.

    >>> search = CollisionSearchUnit(hashes=4, bits_per_hash=2)
    >>> vectors = tf.constant([[[1.0, 2.0], [-1.0, -2.0], [1.0, 2.0]]])
    >>> history = LongHistory(vectors, tf.constant([[[True, True, False]]]), {})
    >>> search(Target(tf.constant([[[2.0, 4.0]]]), {}), history).strength.numpy().tolist()
    [[[1.0, 0.0, 0.0]]]

    Args:
        hashes: How many, m.
        bits_per_hash: How many signs a hash has, tau.
    """

    def __init__(self, hashes: int = 32, bits_per_hash: int = 4, **kwargs: Any) -> None:
        """Check the options."""
        super().__init__(autocast=False, **kwargs)
        self.hashes = check_positive("hashes", hashes)
        self.bits_per_hash = check_positive("bits_per_hash", bits_per_hash)
        if bits_per_hash > MOST_BITS:
            raise OptionError(
                f"`bits_per_hash` should be at most {MOST_BITS}. "
                f"Received: `bits_per_hash` = {bits_per_hash}."
            )
        self.projection = RandomProjection(hashes * bits_per_hash, name="projection")

    @classmethod
    def from_options(cls, options: Any, **kwargs: Any) -> CollisionSearchUnit:
        """Make the unit for ``hashes`` and ``bits_per_hash``."""
        return cls(options.hashes, options.bits_per_hash, **kwargs)

    def build(self, input_shape: Any) -> None:
        """Draw the projection for candidates of [users, candidates, dim]."""
        shape = input_shape.vector if isinstance(input_shape, Target) else input_shape
        self.projection.build(tf.TensorShape(shape))
        super().build(input_shape)

    def call(self, target: Target, history: LongHistory) -> SearchResult:
        """Count the collisions of each candidate with what it may see of its user's history."""
        of_target = self._hash(target.vector)[:, :, :, tf.newaxis]  # [m, users, candidates, 1]
        of_history = self._hash(history.vectors)[:, :, tf.newaxis, :]  # [m, users, 1, long]
        collisions = tf.add_n(
            [tf.cast(of_target[j] == of_history[j], tf.float32) for j in range(self.hashes)]
        )
        strength = tf.where(history.mask, collisions, 0.0) / float(self.hashes)
        return SearchResult(strength > 0.0, strength=strength)

    def _hash(self, vectors: tf.Tensor) -> tf.Tensor:
        """Return each hash as one number: [users, vectors, dim] -> [hashes, users, vectors]."""
        signs = tf.cast(self.projection(vectors) > 0.0, tf.float32)
        users, count, _ = sizes(vectors)
        signs = tf.reshape(signs, [users, count, self.hashes, self.bits_per_hash])
        powers = tf.constant([2.0**bit for bit in range(self.bits_per_hash)])
        return tf.transpose(tf.linalg.matvec(signs, powers), [2, 0, 1])

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the unit."""
        config = {"hashes": self.hashes, "bits_per_hash": self.bits_per_hash}
        return {**super().get_config(), **config}
