"""Efficient Target Attention over hashed histories (ETA, https://arxiv.org/abs/2108.04468)."""

from __future__ import annotations

import tensorflow as tf

from ..blocks.search.hash_search_unit import HashSearchUnit
from ..blocks.search.search_and_attention import AttentionUnit, SearchUnit
from ..blocks.search.target_attention_unit import TargetAttentionUnit
from ..blocks.serialization import register_block
from .long_options import ETAOptions
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
