"""Search-based Interest Model (https://arxiv.org/abs/2006.05639)."""

from __future__ import annotations

import tensorflow as tf

from .blocks.auxiliary_network import AuxiliaryNetwork
from .blocks.classifier_mlp import ClassifierMLP
from .blocks.exact_search_unit import ExactSearchUnit
from .blocks.general_search_unit import GeneralSearchUnit
from .blocks.history_split import HistorySplit
from .blocks.interest_evolution import InterestEvolution
from .body import Body
from .channels import Features
from .dien import UNITS_PER_EMBEDDING_DIM
from .interest_model import InterestModel
from .objective import Outputs
from .options import SIMOptions


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class SIMBody(Body[SIMOptions]):
    """Search in the long history, attention over what it found, DIEN over the short history.

        stage one = MLP([target, attention over the long history, user])
        stage two = MLP([attention over the found, their mean, target, DIEN's state, user])

    The logit that is evaluated is stage two's.
    """

    options_type = SIMOptions
    has_auxiliary_loss = True
    has_stage_one = True

    def make_blocks(self) -> None:
        """Make both search units, interest evolution, auxiliary network and classifiers."""
        options, policy = self.options, self._dtype_policy
        units = UNITS_PER_EMBEDDING_DIM * options.embedding_dim
        self.split = HistorySplit(options.long_seq_length, name="split")
        self.general_search = GeneralSearchUnit(options.top_k, dtype=policy, name="general_search")
        self.exact_search = ExactSearchUnit(dtype=policy, name="exact_search")
        self.interest = InterestEvolution(units, dtype=policy, name="interest")
        self.auxiliary = AuxiliaryNetwork(
            self.item_dim, options.aux_mlp_dims, dtype=policy, name="aux"
        )
        self.stage_one = ClassifierMLP(
            options.stage_one_mlp_dims, options.dropout_rate, dtype=policy, name="stage_one"
        )
        self.stage_two = ClassifierMLP(
            options.stage_two_mlp_dims, options.dropout_rate, dtype=policy, name="stage_two"
        )

    def build_blocks(self) -> None:
        """Create their weights."""
        self.interest.build(tf.TensorShape([None, self.item_dim]))
        self.auxiliary.build(tf.TensorShape([None, self.interest.units]))
        self.stage_one.build(tf.TensorShape([None, 2 * self.item_dim + self.user_dim]))
        width = 3 * self.item_dim + self.interest.units + self.user_dim
        self.stage_two.build(tf.TensorShape([None, width]))

    def call(
        self, features: Features, training: bool = False, with_objective: bool = False
    ) -> Outputs:
        """Return stage two's logits, and with the objective stage one's and the auxiliary ones."""
        ids = {**features.user, **features.target_item}
        ids |= {name: self.split(column) for name, column in features.positive.items()}
        if with_objective:
            ids |= {name: self.split(column).short for name, column in features.negative.items()}
        vectors = self.embedding(ids)
        target_item, user = self.join_item_and_user(vectors)  # [batch, dim]
        mask = self.split(features.mask)
        history = [vectors[name] for name in self.channels.positive]
        long = self.join([feature.long for feature in history])  # [batch, long, dim]
        short = self.join([feature.short for feature in history], mask.short)

        found = self.general_search(target_item, long, mask.long)
        interest = self.exact_search(target_item, long, found, stage_one=with_objective)
        evolution = self.interest(target_item, short, mask.short)
        parts = [interest.attended, interest.mean, target_item, evolution.final_state, *user]
        logits = self.stage_two(tf.concat(parts, axis=-1), training=training)
        if not with_objective:
            return Outputs(logits)

        parts = [target_item, interest.searched, *user]
        stage_one_logits = self.stage_one(tf.concat(parts, axis=-1), training=training)
        negative = self.join([vectors[n] for n in self.channels.negative], mask.short)
        auxiliary = self.auxiliary(evolution.states, short, negative, mask.short)
        return Outputs(logits, stage_one_logits, auxiliary)


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class SIMModel(InterestModel):
    """SIM as a Merlin model; see :class:`~merlin_sim.models.interest_model.InterestModel`."""

    body_type = SIMBody
