"""Deep Interest Network (https://arxiv.org/abs/1706.06978)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import tensorflow as tf

from .blocks.attention import DINAttention, SummedAttention
from .blocks.search.history_split import HistorySplit
from .blocks.serialization import register_block
from .family import ATTENTION
from .interest_block import InterestBlock, InterestModel
from .interest_channels import Features
from .losses import Outputs
from .options import DINOptions, WholeHistoryOptions

AnyWhole = TypeVar("AnyWhole", bound=WholeHistoryOptions)


class WholeHistoryBlock(InterestBlock[AnyWhole]):
    """Attention of the target over the whole history, then the classifier's hidden layers.

    hidden = layers of [target, attention(target, history), user]
    """

    def make_attention(self) -> Any:
        """Make the attention, a block that :meth:`attend` calls."""
        raise NotImplementedError

    @property
    def attended_dim(self) -> int:
        """Length of what the attention gives."""
        raise NotImplementedError

    def attend(
        self,
        features: Features,
        vectors: Mapping[str, Any],
        target: tf.Tensor,
        history: tf.Tensor,
        mask: tf.Tensor,
    ) -> tf.Tensor:
        """Return the interest in each candidate: [users, candidates, attended_dim]."""
        raise NotImplementedError

    def make_blocks(self) -> None:
        """Make the attention."""
        # All of what a candidate sees is read as one: nothing is a short history.
        self.split = HistorySplit(self.channels.history_length, 0, name="split")
        self.attention = self.make_attention()
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
        return self.item_dim + self.attended_dim + sums_dim + self.further_dim + self.user_dim

    def forward(
        self, features: Features, training: bool = False, with_objective: bool = False
    ) -> Outputs:
        """Return the last hidden layer of a batch; the objective needs nothing else."""
        ids = {**features.user, **features.target_item, **features.positive, **features.lists}
        vectors = self.look_up(ids, with_gradient=training or with_objective)
        target = self.join_target(vectors)  # [users, candidates, dim]
        history = self.join([vectors[n] for n in self.channels.positive])  # [users, positions, dim]
        mask = self.split.masks(features.real, features.seen_until).long
        parts = [target, self.attend(features, vectors, target, history, mask)]
        if self.sums is not None:
            parts.append(self.sums(target, history, mask))
        rows = self.join_rows([*parts, *self.further(features, vectors)], vectors)
        return Outputs(self.classifier(rows, training=training))


@register_block
class DINBlock(WholeHistoryBlock[DINOptions]):
    """DIN: attention by the dot product or by the activation unit."""

    options_type = DINOptions

    def make_attention(self) -> DINAttention:
        """Make the attention that the option names."""
        policy = self._dtype_policy
        return DINAttention(self.options.attention, dtype=policy, name="attention")

    def attend(
        self,
        features: Features,
        vectors: Mapping[str, Any],
        target: tf.Tensor,
        history: tf.Tensor,
        mask: tf.Tensor,
    ) -> tf.Tensor:
        """Return the interest in each candidate: [users, candidates, dim]."""
        if self.attention_embedding is None:
            return self.attention(target, history, mask)
        by = self.join_target(vectors, ATTENTION)
        scored = self.join([vectors[n + ATTENTION] for n in self.channels.positive])
        return self.attention(by, scored, mask, history)

    @property
    def attended_dim(self) -> int:
        """Length of an item's vector, whose mean the attention gives."""
        return self.item_dim


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class DINModel(InterestModel):
    """DIN as a Merlin model; see :class:`~.interest_block.InterestModel`."""

    body_type = DINBlock
