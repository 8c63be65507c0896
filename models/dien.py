"""Deep Interest Evolution Network (https://arxiv.org/abs/1809.03672)."""

from __future__ import annotations

import tensorflow as tf

from .blocks.auxiliary_network import AuxiliaryNetwork
from .blocks.classifier_mlp import ClassifierMLP
from .blocks.history_split import HistorySplit
from .blocks.interest_evolution import InterestEvolution
from .body import Body
from .channels import Features
from .interest_model import InterestModel
from .objective import Outputs
from .options import DIENOptions

UNITS_PER_EMBEDDING_DIM = 6
"""Size of the GRUs' states in embedding dims, as published."""


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class DIENBody(Body[DIENOptions]):
    """Interest evolution over the short history, then the classifier.

    logit = MLP([target, InterestEvolution(target, short history), user])
    """

    options_type = DIENOptions
    has_auxiliary_loss = True

    def make_blocks(self) -> None:
        """Make interest evolution, auxiliary network and classifier."""
        options, policy = self.options, self._dtype_policy
        units = UNITS_PER_EMBEDDING_DIM * options.embedding_dim
        self.split = HistorySplit(options.long_seq_length, name="split")
        self.interest = InterestEvolution(units, dtype=policy, name="interest")
        self.auxiliary = AuxiliaryNetwork(
            self.item_dim, options.aux_mlp_dims, dtype=policy, name="aux"
        )
        self.classifier = ClassifierMLP(
            options.stage_two_mlp_dims, options.dropout_rate, dtype=policy, name="classifier"
        )

    def build_blocks(self) -> None:
        """Create their weights."""
        self.interest.build(tf.TensorShape([None, self.item_dim]))
        self.auxiliary.build(tf.TensorShape([None, self.interest.units]))
        width = self.item_dim + self.interest.units + self.user_dim
        self.classifier.build(tf.TensorShape([None, width]))

    def call(
        self, features: Features, training: bool = False, with_objective: bool = False
    ) -> Outputs:
        """Return the logits of a batch, and with the objective the auxiliary network's."""
        ids = {**features.user, **features.target_item}
        histories = [features.positive, *([features.negative] if with_objective else [])]
        for history in histories:
            ids |= {name: self.split(column).short for name, column in history.items()}
        vectors = self.embedding(ids, with_gradient=training or with_objective)
        target_item, user = self.join_item_and_user(vectors)  # [batch, dim]
        mask = self.split(features.mask).short
        short = self.join([vectors[n] for n in self.channels.positive], mask)

        evolution = self.interest(target_item, short, mask)
        parts = [target_item, evolution.final_state, *user]
        logits = self.classifier(tf.concat(parts, axis=-1), training=training)
        if not with_objective:
            return Outputs(logits)
        negative = self.join([vectors[n] for n in self.channels.negative], mask)
        auxiliary = self.auxiliary(evolution.states, short, negative, mask)
        return Outputs(logits, auxiliary=auxiliary)


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class DIENModel(InterestModel):
    """DIEN as a Merlin model; see :class:`~merlin_sim.models.interest_model.InterestModel`."""

    body_type = DIENBody
