"""Two-stage Interest Network (TWIN, https://arxiv.org/abs/2302.02352)."""

from __future__ import annotations

import tensorflow as tf

from ..blocks.search.search_and_attention import AttentionUnit, SearchUnit
from ..blocks.search.target_attention_unit import TargetAttentionUnit
from ..blocks.search.target_search_unit import TargetSearchUnit
from ..blocks.serialization import register_block
from .long_options import TWINOptions
from .sim import SearchedBlock, SearchedModel


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
