"""Deep Interest Evolution Network (https://arxiv.org/abs/1809.03672)."""

from __future__ import annotations

import tensorflow as tf

from ..blocks.recurrence.auxiliary_network import AuxiliaryNetwork
from ..blocks.recurrence.interest_evolution import InterestEvolution
from ..blocks.search.history_split import HistorySplit
from ..blocks.serialization import register_block
from .interest_block import InterestBlock
from .interest_channels import Features
from .interest_model import InterestModel
from .objective import BlockOutputs
from .options import DIENOptions
from .short_history import ShortHistory, ShortWindows, auxiliary_of_samples

UNITS_PER_EMBEDDING_DIM = 6
"""Size of the GRUs' states in embedding dims, as published."""


@register_block
class DIENBlock(InterestBlock[DIENOptions]):
    """Interest evolution over the short history, then the classifier's hidden layers.

    hidden = layers of [target, InterestEvolution(target, short history), user]
    """

    options_type = DIENOptions

    def make_blocks(self) -> None:
        """Make interest evolution and auxiliary network."""
        options, policy = self.options, self._dtype_policy
        units = UNITS_PER_EMBEDDING_DIM * options.embedding_dim
        short_length = self.channels.history_length - options.long_length
        self.split = HistorySplit(options.long_length, short_length, name="split")
        self.interest = InterestEvolution(units, dtype=policy, name="interest")
        self.has_auxiliary_loss = options.auxiliary_loss
        self.auxiliary: AuxiliaryNetwork | None = None
        if options.auxiliary_loss:
            self.auxiliary = AuxiliaryNetwork(
                self.item_dim, options.aux_mlp_dims, dtype=policy, name="aux"
            )

    def build_blocks(self) -> None:
        """Create their weights."""
        self.interest.build(tf.TensorShape([None, None, self.item_dim]))
        if self.auxiliary is not None:
            self.auxiliary.build(tf.TensorShape([None, self.interest.units]))

    @property
    def classified_dim(self) -> int:
        """Length of target, final state, further features and user."""
        width: int = self.item_dim + self.interest.units + self.user_dim
        return width + self.further_dim

    def forward(
        self, features: Features, training: bool = False, with_objective: bool = False
    ) -> BlockOutputs:
        """Return the last hidden layer, and with the objective the auxiliary network's logits."""
        ids = {**features.user, **features.target_item, **features.listed}
        with_negatives = with_objective and self.has_auxiliary_loss
        histories = [features.positive, *([features.negative] if with_negatives else [])]
        windows = ShortWindows.of(self.split, features.window_ends, self.options.one_pass)
        for history in histories:
            ids |= {n: windows.cut(column) for n, column in history.items()}
        vectors = self.embedding(ids, with_gradient=training or with_objective)
        target = self.join_target(vectors)  # [users, candidates, dim]
        mask = windows.cut(features.real)
        short = ShortHistory(self.join([vectors[n] for n in self.channels.positive], mask), mask)

        evolution = self.interest(target, *short, windows.places)
        parts = [target, evolution.final_state, *self.further(features, vectors)]
        rows = self.join_rows(parts, vectors)
        hidden = self.classifier(rows, training=training)
        if not with_objective or self.auxiliary is None:
            return BlockOutputs(hidden)
        negative = self.join([vectors[n] for n in self.channels.negative], mask)
        auxiliary = auxiliary_of_samples(
            self.auxiliary, evolution, short, negative, training, windows.places
        )
        return BlockOutputs(hidden, auxiliary=auxiliary)


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class DIENModel(InterestModel):
    """DIEN as a Merlin model; see :class:`~.interest_model.InterestModel`."""

    body_type = DIENBlock
