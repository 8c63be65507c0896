"""The two towers as a Merlin model: their objective, and the vectors that they are kept for."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ..blocks.checks import OptionError
from ..frame.block_model import BlockModel
from ..interest.interest_channels import Channels
from .options import TwoTowerOptions
from .sampled_softmax import sampled_softmax_loss
from .two_tower_block import TwoTowerBlock


class TwoTowerOutputs(NamedTuple):
    """What a forward pass gives."""

    logits: tf.Tensor
    """The cosine over the temperature: [samples, 1], float32; orders a user's items."""
    users: tf.Tensor
    """Vectors of unit length, [users, dim], float32."""
    items: tf.Tensor
    """Vectors of unit length, [users, candidates, dim], float32."""


class TwoTowerLosses(NamedTuple):
    """The objective of one batch."""

    total_loss: tf.Tensor
    """The sampled softmax over the batch's items: a float32 scalar."""


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class TwoTowerModel(BlockModel):
    """Two towers, trained by a softmax over the items of the batch.

    Every row's item is a candidate of every clicked row's user, those of rows without a click
    among them. How often each item is a row's item has to be said before training
    (:meth:`take_target_counts`; ``merlin-sim train`` counts); until then all are taken to be
    equally popular. What was counted is saved with the model, and loaded with it. On several ranks
    each has the items of its own part of the batch.

    Merlin's own (``mm.TwoTowerModelV2`` with ``mm.ContrastiveOutput``) takes each row for a
    positive one and computes its loss within Keras's ``train_step``: it has no weights of rows, so
    that no row could be without a click, or a filler of an uneven last batch, and its step cannot
    be resumed to the bit. Its parts are used here where they fit: tables, blocks, the model.

    Args:
        schema: The Merlin schema of the dataset, label included.
        options: The model's options.
        name: The model's name; None for one made of the class's.
        dtype: The precision policy; None for the global one.
    """

    body_type = TwoTowerBlock
    body: TwoTowerBlock
    has_vectors: ClassVar[bool] = True

    def __init__(self, schema: Any, options: Any, **kwargs: Any) -> None:
        """Make the model; all items are equally popular until they are counted."""
        super().__init__(schema, options, **kwargs)
        self._item = self.channels.target_item[0]
        rows = self.channels.schema[self._item].int_domain.max + 1
        self._log_chances = tf.Variable(
            np.zeros(rows, np.float32), trainable=False, name="log_chances"
        )

    @staticmethod
    def make_logit() -> tf.keras.layers.Layer:
        """Make a layer that gives the block's output as it is: it is the logit."""
        return tf.keras.layers.Activation("linear", dtype="float32", name="logit")

    @staticmethod
    def prepared_by(body: Any) -> tf.keras.layers.Layer:
        """Return what brings histories to one length."""
        return body.padding

    @property
    def counted_variables(self) -> tuple[tf.Variable, ...]:
        """What is counted in the training data: kept in checkpoints though it is not trained."""
        return (self._log_chances,)

    @property
    def channels(self) -> Channels:
        """The columns that the model reads, by channel."""
        return self.body.channels

    @property
    def options(self) -> TwoTowerOptions:
        """The model's options."""
        return self.body.options

    def take_target_counts(self, counts: npt.NDArray[np.int64]) -> None:
        """Hear how often each item is a row's item in the training data.

        Args:
            counts: [cardinality + 1] By item id; an item that is never one counts as once.
        """
        rows = int(self._log_chances.shape[0])
        if counts.shape != (rows,) or (counts < 0).any():
            raise OptionError(
                f"`counts` should be {rows} numbers of at least 0, one for each id of "
                f"{self._item!r}. Received: {counts.shape}, at least {counts.min(initial=0)}."
            )
        shares = np.maximum(counts, 1) / max(1, counts.sum())
        self._log_chances.assign(np.log(shares).astype(np.float32))

    def forward(self, columns: dict[str, Any], training: bool = False) -> TwoTowerOutputs:
        """Return the logits of a batch of columns, and the vectors that they are made of.

        Args:
            columns: One batch: plain rows, or one user's row and its candidates.
            training: Whether to prepare the tables for a gradient.
        """
        users, items = self.body.forward(self.body.features(columns), training)
        logits = self.body.products(users, items)
        return TwoTowerOutputs(logits, users, items)

    def compute_step(
        self,
        columns: dict[str, Any],
        labels: tf.Tensor,
        sample_weight: tf.Tensor | None = None,
        training: bool = True,
    ) -> tuple[TwoTowerLosses, tf.Tensor]:
        """Return the loss of a batch of plain rows, and its logits, for a loop of one's own.

        Args:
            columns: One batch, as ``fit`` takes it.
            labels: [rows] or [rows, 1].
            sample_weight: Of the same shape; None counts every clicked row once.
            training: Whether to prepare the tables for a gradient.
        """
        outputs = self.forward(columns, training)
        weights = tf.reshape(tf.cast(labels, tf.float32), [-1])
        if sample_weight is not None:
            weights *= tf.reshape(tf.cast(sample_weight, tf.float32), [-1])
        items = tf.reshape(outputs.items, [-1, self.options.tower_dim])
        logits = tf.matmul(outputs.users, items, transpose_b=True) / self.options.temperature
        ids = tf.reshape(tf.cast(columns[self._item], tf.int32), [-1])
        loss = sampled_softmax_loss(logits, ids, tf.gather(self._log_chances, ids), weights)
        return self.regularized(TwoTowerLosses(loss)), outputs.logits
