"""Deep Interest Network (https://arxiv.org/abs/1706.06978)."""

from __future__ import annotations

import tensorflow as tf

from .blocks.attention import DINAttention, SummedAttention
from .blocks.search.history_split import HistorySplit
from .blocks.serialization import register_block
from .interest_block import InterestBlock, InterestModel
from .interest_channels import Features
from .losses import Outputs
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
        self.sums: SummedAttention | None = None
        if self.options.attention_sums:
            self.sums = self.make_summed_attention()

    def build_blocks(self) -> None:
        """Create its weights."""
        of_item = tf.TensorShape([None, None, self.item_dim])
        self.attention.build(of_item)
        if self.sums is not None:
            self.sums.build(of_item)

    @property
    def classified_dim(self) -> int:
        """Length of target, interest, sums, further features and user."""
        sums_dim = 0 if self.sums is None else self.sums.summed_dim
        return 2 * self.item_dim + sums_dim + self.further_dim + self.user_dim

    def forward(
        self, features: Features, training: bool = False, with_objective: bool = False
    ) -> Outputs:
        """Return the last hidden layer of a batch; DIN's objective needs nothing else."""
        ids = {**features.user, **features.target_item, **features.positive, **features.listed}
        vectors = self.embedding(ids, with_gradient=training or with_objective)
        target = self.join_target(vectors)  # [users, candidates, dim]
        history = self.join([vectors[n] for n in self.channels.positive])  # [users, places, dim]
        mask = self.split.masks(features.real, features.seen_until).long
        interest = self.attention(target, history, mask)  # [users, candidates, dim]
        parts = [target, interest]
        if self.sums is not None:
            parts.append(self.sums(target, history, mask))
        rows = self.join_rows([*parts, *self.further(features, vectors)], vectors)
        return Outputs(self.classifier(rows, training=training))


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class DINModel(InterestModel):
    """DIN as a Merlin model; see :class:`~.interest_block.InterestModel`."""

    body_type = DINBlock
