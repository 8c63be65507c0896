"""Deep Interest Network (https://arxiv.org/abs/1706.06978)."""

from __future__ import annotations

import tensorflow as tf

from ..blocks.attention.din_attention import DINAttention
from ..blocks.search.history_split import HistorySplit
from ..blocks.serialization import register_block
from .interest_block import InterestBlock
from .interest_channels import Features
from .interest_model import InterestModel
from .objective import BlockOutputs
from .options import DINOptions


@register_block
class DINBlock(InterestBlock[DINOptions]):
    """Attention of the target over the whole history, then the classifier's hidden layers.

    hidden = layers of [target, DINAttention(target, history), user]
    """

    options_type = DINOptions

    def make_blocks(self) -> None:
        """Make the attention."""
        policy = self._dtype_policy
        # All of what a candidate sees is read as one: nothing is a short history.
        self.split = HistorySplit(self.channels.history_length, 0, name="split")
        self.attention = DINAttention(self.options.attention, dtype=policy, name="attention")

    def build_blocks(self) -> None:
        """Create its weights."""
        self.attention.build(tf.TensorShape([None, None, self.item_dim]))

    @property
    def classified_dim(self) -> int:
        """Length of target, interest, counts and user."""
        return 2 * self.item_dim + self.user_dim + self.counts_dim

    def forward(
        self, features: Features, training: bool = False, with_objective: bool = False
    ) -> BlockOutputs:
        """Return the last hidden layer of a batch; DIN's objective needs nothing else."""
        ids = {**features.user, **features.target_item, **features.positive}
        vectors = self.embedding(ids, with_gradient=training or with_objective)
        target = self.join_target(vectors)  # [users, candidates, dim]
        history = self.join([vectors[n] for n in self.channels.positive])  # [users, places, dim]
        mask = self.split.masks(features.real, features.ends).long
        interest = self.attention(target, history, mask)  # [users, candidates, dim]
        rows = self.join_rows([target, interest, *self.counted(features)], vectors)
        return BlockOutputs(self.classifier(rows, training=training))


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class DINModel(InterestModel):
    """DIN as a Merlin model; see :class:`~.interest_model.InterestModel`."""

    body_type = DINBlock
