"""Deep Learning Recommendation Model (https://arxiv.org/abs/1906.00091)."""

from __future__ import annotations

import tensorflow as tf

from ..blocks.interactions.dot_interaction import DotInteraction, number_of_pairs
from ..blocks.serialization import register_block
from .options import DLRMOptions
from .ranking_block import RankingBlock
from .ranking_model import RankingModel


@register_block
class DLRMBlock(RankingBlock[DLRMOptions]):
    """Dot products of all pairs of vectors, behind what the bottom layers gave."""

    options_type = DLRMOptions

    def make_blocks(self) -> None:
        """Make the interaction."""
        self.interaction = DotInteraction(dtype=self._dtype_policy, name="interaction")

    def join(self, vectors: list[tf.Tensor]) -> tf.Tensor:
        """Return [bottom, products of pairs]."""
        products = self.interaction(tf.stack(vectors, axis=1))  # [batch, pairs]
        bottom = vectors[:1] if self.channels.numerical else []
        return tf.concat([*bottom, products], axis=1)

    @property
    def joined_dim(self) -> int:
        """Length of the bottom layers' vector, and number of pairs."""
        bottom = self.options.embedding_dim if self.channels.numerical else 0
        return bottom + number_of_pairs(len(self.vector_dims))


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class DLRMModel(RankingModel):
    """DLRM as a Merlin model; see :class:`~.ranking_model.RankingModel`."""

    body_type = DLRMBlock
