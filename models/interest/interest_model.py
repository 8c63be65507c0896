"""What makes the blocks Merlin models: their columns, their objective, save and load."""

from __future__ import annotations

from typing import Any, ClassVar

import tensorflow as tf

from ...foundation.batch_names import HISTORY_END
from ...steps.sample_batch import weights_over_counted
from ..frame.block_model import BlockModel
from .interest_block import InterestBlock
from .interest_channels import Channels, Features
from .objective import Outputs, StepLosses, step_losses
from .options import ModelOptions


class InterestModel(BlockModel):
    """A block of this package and the logit of its last hidden layer, as a Merlin model.

    It is ``mm.Model(block, mm.BinaryOutput(label))`` with the same weights.

    ``predict`` gives the click probability, [batch, 1], float32. ``compile`` and ``fit`` as they
    are train the published objective, with the losses beside that of the evaluated logit (the
    first stage's, the auxiliary network's); at inference nothing of it is computed, and the
    negative histories need not be there.

    Args:
        schema: The Merlin schema of the dataset, label included.
        options: The model's options.
        name: The model's name; None for one made of the class's.
        dtype: The precision policy; None for the global one.
        **parts: Parts of the block that are passed in, as ``part_names`` lists them.
    """

    body_type: ClassVar[type[InterestBlock[Any]]]
    body: InterestBlock[Any]
    takes_candidates: ClassVar[bool] = True

    @staticmethod
    def prepared_by(body: Any) -> tf.keras.layers.Layer:
        """Return what brings histories to one length."""
        return body.padding

    @staticmethod
    def inner_losses_of(body: Any) -> tuple[str, ...]:
        """Return the names of the losses beside that of the logit."""
        return StepLosses._fields[1:] if body.has_auxiliary_loss else ()

    @property
    def channels(self) -> Channels:
        """The columns that the model reads, by channel."""
        return self.body.channels

    @property
    def training_columns(self) -> tuple[str, ...]:
        """What training reads of each row, label included."""
        negative = self.channels.negative if self.body.has_auxiliary_loss else ()
        return (self.label, *self.served_columns, *negative)

    @property
    def negatives_read(self) -> int | None:
        """How many of the newest places of a negative history the model reads; None for all."""
        split = getattr(self.body, "split", None)
        return None if split is None else int(split.short_length)

    @property
    def options(self) -> ModelOptions:
        """The model's options."""
        options: ModelOptions = self.body.options
        return options

    def features(self, columns: dict[str, Any], with_negatives: bool = False) -> Features:
        """Sort a batch of columns, ragged or padded, into channels.

        Raises:
            OptionError: Naming the columns that are missing.
        """
        return self.body.features(columns, with_negatives)

    def logits(self, hidden: tf.Tensor) -> tf.Tensor:
        """Return the logits, [samples, 1], float32, of the block's last hidden layer."""
        return self.output_block.to_call(hidden)

    def forward(
        self, columns: dict[str, Any], training: bool = False, with_objective: bool = False
    ) -> Outputs:
        """Return the logits of a batch, and what the objective needs if that is asked for.

        A batch has one target item for each row, [rows], or candidates, [users, candidates]; the
        other columns have a row for each user. All of a user's candidates see the whole history,
        unless the column ``history_end``, [users, candidates], says where each has to stop: see
        :data:`~merlin_sim.foundation.batch_names.HISTORY_END`.
        """
        needs_negatives = with_objective and self.body.has_auxiliary_loss
        features = self.features(columns, with_negatives=needs_negatives)
        outputs = self.body.forward(features, training=training, with_objective=with_objective)
        logits = self.logits(outputs.hidden)
        return Outputs(logits, outputs.stage_one_logits, outputs.auxiliary)

    def compute_step(
        self,
        columns: dict[str, Any],
        labels: tf.Tensor,
        sample_weight: tf.Tensor | None = None,
        training: bool = True,
    ) -> tuple[StepLosses, tf.Tensor]:
        """Return the losses of a batch by name, and its evaluated logits, for a loop of one's own.

        Args:
            columns: One batch, as ``fit`` takes it.
            labels: One for each sample: [users, candidates], [rows] or [rows, 1].
            sample_weight: Of the same shape; None counts every sample once. In a batch with
                ``history_end`` samples of weight 0 are fillers: means are over the others.
            training: Whether dropout applies.
        """
        if HISTORY_END in columns:
            sample_weight = weights_over_counted(sample_weight)
        outputs = self.forward(columns, training=training, with_objective=True)
        losses = step_losses(outputs, labels, sample_weight, self.evaluated_loss)
        return self.regularized(losses), outputs.logits
