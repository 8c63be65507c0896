"""ETA's search: the positions whose codes differ least from the candidate's."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..checks import check_positive
from ..serialization import register_block
from ..shapes import sizes
from .random_projection import RandomProjection
from .search_and_attention import LongHistory, SearchResult, SearchUnit, Target
from .top_k_mask import top_k_mask

LARGEST_EXACT = 2**24
"""Up to here float32 holds every whole number."""


@register_block
class HashSearchUnit(SearchUnit):
    """Search by Hamming distance (ETA, https://arxiv.org/abs/2108.04468, section 4.2).

        code(x) = signs of fixed random projections of x
        selected = the top_k positions it may see whose codes differ from code(e) in fewest signs

    Among equal distances, of which there are many, the newer position is taken. The codes of a
    history are made once a user. A search has no gradient.

    >>> search = HashSearchUnit(bits=16, top_k=1)
    >>> vectors = tf.constant([[[1.0, 2.0], [-1.0, -2.0], [1.0, 2.0], [1.0, 2.0]]])
    >>> history = LongHistory(vectors, tf.constant([[[True, True, True, False]]]), {})
    >>> search(Target(tf.constant([[[2.0, 4.0]]]), {}), history).selected.numpy().tolist()
    [[[False, False, True, False]]]

    Args:
        bits: How many signs a code has; more than twice the vectors' length gains nothing.
        top_k: How many positions to keep at most.
    """

    def __init__(self, bits: int = 64, top_k: int = 48, **kwargs: Any) -> None:
        """Check the options."""
        super().__init__(autocast=False, **kwargs)
        self.top_k = check_positive("top_k", top_k)
        self.projection = RandomProjection(bits, name="projection")

    @property
    def bits(self) -> int:
        """How many signs a code has."""
        return self.projection.bits

    @classmethod
    def from_options(cls, options: Any, **kwargs: Any) -> HashSearchUnit:
        """Make the unit for ``hash_bits`` and ``top_k``."""
        return cls(options.hash_bits, options.top_k, **kwargs)

    def build(self, input_shape: Any) -> None:
        """Draw the projection for candidates of [users, candidates, dim]."""
        shape = input_shape.vector if isinstance(input_shape, Target) else input_shape
        self.projection.build(tf.TensorShape(shape))
        super().build(input_shape)

    def call(self, target: Target, history: LongHistory) -> SearchResult:
        """Search for each candidate in what it may see of its user's history."""
        of_target = self.projection(target.vector)  # [users, candidates, bits]
        of_history = self.projection(history.vectors)  # [users, long, bits]
        # The product of two codes is bits - 2 x distance: whole numbers, exact in float32.
        agreeing = (tf.matmul(of_target, of_history, transpose_b=True) + float(self.bits)) / 2.0
        places = sizes(history.vectors)[1]
        if not isinstance(places, int) or (self.bits + 1) * places > LARGEST_EXACT:
            # Of equal weights the first are taken, which are the newest of a history turned round.
            newest_first = tf.reverse(tf.where(history.mask, agreeing + 1.0, 0.0), [-1])
            return SearchResult(tf.reverse(top_k_mask(newest_first, self.top_k), [-1]))
        # One number for both, as ties cost time: the more signs agree, and among equals the newer,
        # the greater.
        newest_last = tf.cast(tf.range(1, places + 1), tf.float32)
        ranked = agreeing * float(places) + newest_last
        return SearchResult(top_k_mask(tf.where(history.mask, ranked, 0.0), self.top_k))

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the unit."""
        return {**super().get_config(), "bits": self.bits, "top_k": self.top_k}
