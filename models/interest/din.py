"""Deep Interest Network (https://arxiv.org/abs/1706.06978)."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from ..blocks.attention.din_attention import DINAttention
from ..blocks.serialization import register_block
from .candidate_blocks import CandidateUser, attention_for_candidates
from .interest_block import CandidateIds, InterestBlock
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
        self.attention = DINAttention(self.options.attention, dtype=policy, name="attention")

    def build_blocks(self) -> None:
        """Create its weights."""
        self.attention.build(tf.TensorShape([None, self.item_dim]))

    @property
    def classified_dim(self) -> int:
        """Length of target, interest and user."""
        return 2 * self.item_dim + self.user_dim

    def forward(
        self, features: Features, training: bool = False, with_objective: bool = False
    ) -> BlockOutputs:
        """Return the last hidden layer of a batch; DIN's objective needs nothing else."""
        ids = {**features.user, **features.target_item, **features.positive}
        vectors = self.embedding(ids, with_gradient=training or with_objective)
        target_item, user = self.join_item_and_user(vectors)  # [batch, dim]
        history = self.join([vectors[n] for n in self.channels.positive])  # [batch, history, dim]
        interest = self.attention(target_item, history, features.mask)  # [batch, dim]
        parts = [target_item, interest, *user]
        return BlockOutputs(self.classifier(tf.concat(parts, axis=-1), training=training))

    def for_candidates(self, features: Features) -> Callable[[CandidateIds], tf.Tensor]:
        """Embed the history once, and read it through each candidate."""
        user = CandidateUser(self, features)
        read = attention_for_candidates(self.attention, user.long, user.long_mask)

        def hidden(ids: CandidateIds) -> tf.Tensor:
            targets = user.embed(ids)
            return self.classifier(user.join([targets, read(targets)]))

        return hidden


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class DINModel(InterestModel):
    """DIN as a Merlin model; see :class:`~.interest_model.InterestModel`."""

    body_type = DINBlock
