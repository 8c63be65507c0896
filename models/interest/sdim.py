"""Sampling-based Deep Interest Modeling (SDIM, https://arxiv.org/abs/2205.10249)."""

from __future__ import annotations

import tensorflow as tf

from ..blocks.search.collision_attention_unit import CollisionAttentionUnit
from ..blocks.search.collision_search_unit import CollisionSearchUnit
from ..blocks.search.search_and_attention import AttentionUnit, SearchUnit
from ..blocks.serialization import register_block
from .long_options import SDIMOptions
from .sim import SearchedBlock, SearchedModel


@register_block
class SDIMBlock(SearchedBlock[SDIMOptions]):
    """Hashes instead of a search, and the sum of what collides with the target."""

    options_type = SDIMOptions

    @property
    def heads(self) -> int:
        """How many heads attend to the short history."""
        return self.options.heads

    def make_search_unit(self) -> SearchUnit:
        """Make what counts collisions."""
        policy = self._dtype_policy
        return CollisionSearchUnit.from_options(self.options, dtype=policy, name="search_unit")

    def make_attention_unit(self) -> AttentionUnit:
        """Make what sums the colliding."""
        counts = self.options.collision_counts
        return CollisionAttentionUnit(counts, dtype=self._dtype_policy, name="attention_unit")


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class SDIMModel(SearchedModel):
    """SDIM as a Merlin model; see :class:`~.sim.SearchedModel`."""

    body_type = SDIMBlock
