"""What makes the blocks Merlin models: their logit, their objective, their columns."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import tensorflow as tf

from ..blocks.embeddings.left_padding import LeftPadding
from ..blocks.heads.relu_layers import published_dense
from ..frame.block_model import BlockModel
from .options import RankingOptions
from .ranking_block import RankingBlock
from .ranking_channels import RankingChannels


class RankingOutputs(NamedTuple):
    """What a forward pass gives."""

    logits: tf.Tensor
    """The logit: [batch, 1], float32."""


class RankingLosses(NamedTuple):
    """The objective of one batch."""

    total_loss: tf.Tensor
    """Binary cross-entropy from the logits: a float32 scalar."""


class RankingModel(BlockModel):
    """A block of this package and the logit of its last hidden layer, as a Merlin model.

    It is ``mm.Model(block, mm.BinaryOutput(label))`` with the same weights. ``predict`` gives the
    click probability, [batch, 1], float32.

    Args:
        schema: The Merlin schema of the dataset, label included.
        options: The model's options.
        name: The model's name; None for one made of the class's.
        dtype: The precision policy; None for the global one.
    """

    body_type: ClassVar[type[RankingBlock[Any]]]
    body: RankingBlock[Any]

    @staticmethod
    def make_logit() -> tf.keras.layers.Layer:
        """Make the layer of the logit, with the published starting values."""
        return published_dense(1, None, dtype="float32", name="logit")

    @staticmethod
    def prepared_by(body: Any) -> tf.keras.layers.Layer:
        """Return what leaves a batch as it is: it has no histories."""
        return LeftPadding({}, name="as_it_is")

    @property
    def channels(self) -> RankingChannels:
        """The columns that the model reads, by channel."""
        return self.body.channels

    @property
    def options(self) -> RankingOptions:
        """The model's options."""
        options: RankingOptions = self.body.options
        return options

    def forward(self, columns: dict[str, Any], training: bool = False) -> RankingOutputs:
        """Return the logits of a batch of columns.

        Args:
            columns: One batch.
            training: Whether to prepare the tables for a gradient.
        """
        hidden = self.body.forward(self.body.features(columns), training=training)
        return RankingOutputs(self.output_block.to_call(hidden))

    def compute_step(
        self,
        columns: dict[str, Any],
        labels: tf.Tensor,
        sample_weight: tf.Tensor | None = None,
        training: bool = True,
    ) -> tuple[RankingLosses, tf.Tensor]:
        """Return the losses of a batch by name, and its logits, for a loop of one's own.

        Args:
            columns: One batch, as ``fit`` takes it.
            labels: [batch] or [batch, 1].
            sample_weight: [batch] or [batch, 1]; None counts every sample once.
            training: Whether to prepare the tables for a gradient.
        """
        logits = self.forward(columns, training=training).logits
        loss = self.evaluated_loss.cost(labels, logits, sample_weight)
        weight = self.evaluated_loss.weight
        losses = RankingLosses(loss if weight is None else weight * loss)
        return self.regularized(losses), logits
