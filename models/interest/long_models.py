"""ETA, SDIM and TWIN: SIM's frame with another search and another attention."""

from __future__ import annotations

import tensorflow as tf

from ..blocks.search.attention_units import CollisionAttentionUnit, TargetAttentionUnit
from ..blocks.search.search_and_attention import AttentionUnit, SearchUnit
from ..blocks.search.search_units import CollisionSearchUnit, HashSearchUnit, TargetSearchUnit
from ..blocks.serialization import register_block
from ..options import ETAOptions, SDIMOptions, TWINOptions
from .sim import SearchedBlock, SearchedModel


@register_block
class ETABlock(SearchedBlock[ETAOptions]):
    """Search by Hamming distance of random signs, attention of several heads to what it found."""

    options_type = ETAOptions

    @property
    def heads(self) -> int:
        """How many heads attend, to the long history and to the short one."""
        return self.options.heads

    def make_search_unit(self) -> SearchUnit:
        """Make the search by hashes."""
        policy = self._dtype_policy
        return HashSearchUnit.from_options(self.options, dtype=policy, name="search_unit")

    def make_attention_unit(self) -> AttentionUnit:
        """Make the attention to what was found."""
        attention = self.make_target_attention("attention")
        return TargetAttentionUnit(attention, dtype=self._dtype_policy, name="attention_unit")


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class ETAModel(SearchedModel):
    """ETA as a Merlin model; see :class:`~.sim.SearchedModel`."""

    body_type = ETABlock


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


@register_block
class TWINBlock(SearchedBlock[TWINOptions]):
    """One attention, with the same parameters in the search and over what the search found."""

    options_type = TWINOptions
    reads_time_intervals = True

    def make_blocks(self) -> None:
        """Make the attention of both stages, and the frame's blocks."""
        super().make_blocks()
        has_times = self.channels.time_intervals is not None
        time_dim = self.options.embedding_dim if has_times else 0
        self.target_attention = self.make_target_attention("target_attention", time_dim)

    @property
    def heads(self) -> int:
        """How many heads attend, to the long history and to the short one."""
        return self.options.heads

    @property
    def time_buckets(self) -> int:
        """Rows of the table of time intervals."""
        return self.options.time_buckets

    def make_search_unit(self) -> SearchUnit:
        """Make the search by the attention's scores."""
        policy, top_k = self._dtype_policy, self.options.top_k
        return TargetSearchUnit(self.target_attention, top_k, dtype=policy, name="search_unit")

    def make_attention_unit(self) -> AttentionUnit:
        """Make the attention to what was found."""
        policy = self._dtype_policy
        return TargetAttentionUnit(self.target_attention, dtype=policy, name="attention_unit")


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class TWINModel(SearchedModel):
    """TWIN as a Merlin model; see :class:`~.sim.SearchedModel`."""

    body_type = TWINBlock
