"""Deep & Cross Network, version 2 (https://arxiv.org/abs/2008.13535), in DLRM's frame."""

from __future__ import annotations

import tensorflow as tf

from ..blocks.interactions.cross_layers import CrossLayers
from ..blocks.serialization import register_block
from .options import DCNv2Options
from .ranking_block import RankingBlock
from .ranking_model import RankingModel


@register_block
class DCNv2Block(RankingBlock[DCNv2Options]):
    """Cross layers over all vectors side by side, whatever their lengths."""

    options_type = DCNv2Options

    def make_blocks(self) -> None:
        """Make the cross layers."""
        options, policy = self.options, self._dtype_policy
        self.cross = CrossLayers(
            options.cross_layers, options.cross_rank, dtype=policy, name="cross"
        )

    def build_blocks(self) -> None:
        """Create their weights."""
        with tf.name_scope("cross"):
            self.cross.build(tf.TensorShape([None, self.joined_dim]))

    def join(self, vectors: list[tf.Tensor]) -> tf.Tensor:
        """Return the crossed vectors, as long as they are together."""
        return self.cross(tf.concat(vectors, axis=1))

    @property
    def joined_dim(self) -> int:
        """Length of all vectors together."""
        return sum(self.vector_dims)


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class DCNv2Model(RankingModel):
    """DCNv2 as a Merlin model; see :class:`~.ranking_model.RankingModel`."""

    body_type = DCNv2Block
