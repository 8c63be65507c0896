"""ETA, SDIM and TWIN: SIM's frame with another search and another attention."""

from __future__ import annotations

import tensorflow as tf

from .blocks.search.attention_units import CollisionAttentionUnit, TargetAttentionUnit
from .blocks.search.search_and_attention import AttentionUnit, SearchUnit
from .blocks.search.search_units import CollisionSearchUnit, HashSearchUnit, TargetSearchUnit
from .blocks.serialization import register_block
from .options import ETAOptions, SDIMOptions, TWINOptions
from .sim import SearchedBlock, SearchedModel


@register_block
class ETABlock(SearchedBlock[ETAOptions]):
    """Efficient Target Attention over hashed histories (ETA, https://arxiv.org/abs/2108.04468).

    Search by Hamming distance of random signs, attention of several heads to what it found.
    """

    options_type = ETAOptions

    def make_search_unit(self) -> SearchUnit:
        """Make the search by hashes."""
        bits, top_k = self.options.hash_bits, self.options.top_k
        return HashSearchUnit(bits, top_k, dtype=self._dtype_policy, name="search_unit")

    def make_attention_unit(self) -> AttentionUnit:
        """Make the attention to what was found."""
        attention = self.make_target_attention("attention")
        return TargetAttentionUnit(attention, dtype=self._dtype_policy, name="attention_unit")


@register_block
class SDIMBlock(SearchedBlock[SDIMOptions]):
    """Sampling-based Deep Interest Modeling (SDIM, https://arxiv.org/abs/2205.10249).

    Hashes instead of a search, and the sum of what collides with the target.
    """

    options_type = SDIMOptions

    def make_search_unit(self) -> SearchUnit:
        """Make what counts collisions."""
        hashes, bits = self.options.hashes, self.options.bits_per_hash
        return CollisionSearchUnit(hashes, bits, dtype=self._dtype_policy, name="search_unit")

    def make_attention_unit(self) -> AttentionUnit:
        """Make what sums the colliding."""
        counts = self.options.collision_counts
        return CollisionAttentionUnit(counts, dtype=self._dtype_policy, name="attention_unit")


@register_block
class TWINBlock(SearchedBlock[TWINOptions]):
    """Two-stage Interest Network (TWIN, https://arxiv.org/abs/2302.02352).

    One attention, with the same parameters in the search and over what the search found.
    """

    options_type = TWINOptions
    reads_time_intervals = True

    def make_blocks(self) -> None:
        """Make the attention of both stages, and the frame's blocks."""
        super().make_blocks()
        self.target_attention = self.make_target_attention("target_attention", self.time_dim)

    def make_search_unit(self) -> SearchUnit:
        """Make the search by the attention's scores."""
        policy, top_k = self._dtype_policy, self.options.top_k
        return TargetSearchUnit(self.target_attention, top_k, dtype=policy, name="search_unit")

    def make_attention_unit(self) -> AttentionUnit:
        """Make the attention to what was found."""
        policy = self._dtype_policy
        return TargetAttentionUnit(self.target_attention, dtype=policy, name="attention_unit")


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class ETAModel(SearchedModel):
    """ETA as a Merlin model; see :class:`~.sim.SearchedModel`."""

    body_type = ETABlock


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class SDIMModel(SearchedModel):
    """SDIM as a Merlin model; see :class:`~.sim.SearchedModel`."""

    body_type = SDIMBlock


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class TWINModel(SearchedModel):
    """TWIN as a Merlin model; see :class:`~.sim.SearchedModel`."""

    body_type = TWINBlock
