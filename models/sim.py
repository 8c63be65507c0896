"""Search-based Interest Model (https://arxiv.org/abs/2006.05639)."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .blocks.auxiliary_network import AuxiliaryNetwork
from .blocks.checks import check_choice
from .blocks.classifier_mlp import ClassifierMLP
from .blocks.exact_search_unit import ExactSearchUnit, LongInterest
from .blocks.general_search_unit import GeneralSearchUnit, SearchResult
from .blocks.hard_search_unit import HardSearchUnit
from .blocks.history_split import HistorySplit
from .blocks.interest_evolution import InterestEvolution
from .blocks.multi_head_search_unit import MultiHeadSearchUnit
from .blocks.time_interval_embedding import TimeIntervalEmbedding
from .body import Body
from .channels import Features
from .dien import UNITS_PER_EMBEDDING_DIM
from .interest_model import InterestModel
from .objective import Outputs
from .options import DEFAULT_HEADS, SIMOptions


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
    reads_time_intervals = True

    def make_blocks(self) -> None:
        """Make both search units, interest evolution, auxiliary network and classifiers."""
        options, policy = self.options, self._dtype_policy
        units = UNITS_PER_EMBEDDING_DIM * options.embedding_dim
        self.split = HistorySplit(options.long_seq_length, name="split")
        unit = HardSearchUnit if options.search == "hard" else GeneralSearchUnit
        self.general_search: Any = unit(options.top_k, dtype=policy, name="general_search")
        self.category = self._category_columns()
        self.make_exact_search()
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

    def make_exact_search(self) -> None:
        """Make the exact search unit: the published one, or the paper's with heads and times."""
        options, policy = self.options, self._dtype_policy
        self.time_embedding: TimeIntervalEmbedding | None = None
        self.exact_search: Any
        heads = options.heads
        if self.channels.time_intervals:
            heads = heads or DEFAULT_HEADS
            self.time_embedding = TimeIntervalEmbedding(
                options.embedding_dim, options.time_buckets, dtype=policy, name="time_embedding"
            )
        if heads is None:
            self.exact_search = ExactSearchUnit(dtype=policy, name="exact_search")
            self.attended_dim = self.item_dim
            return
        time_dim = options.embedding_dim if self.time_embedding else 0
        self.exact_search = MultiHeadSearchUnit(
            heads, self.item_dim, time_dim, dtype=policy, name="exact_search"
        )
        self.attended_dim = heads * (self.item_dim + time_dim)

    def _category_columns(self) -> tuple[str, str] | None:
        name, targets = self.options.category_feature, self.channels.target_item
        if name is None:
            return None
        check_choice("category_feature", name, targets)
        return name, self.channels.positive[targets.index(name)]

    def build_blocks(self) -> None:
        """Create their weights."""
        self.interest.build(tf.TensorShape([None, self.item_dim]))
        self.auxiliary.build(tf.TensorShape([None, self.interest.units]))
        self.stage_one.build(tf.TensorShape([None, 2 * self.item_dim + self.user_dim]))
        self.exact_search.build(tf.TensorShape([None, self.item_dim]))
        if self.time_embedding is not None:
            self.time_embedding.build(None)
        width = self.attended_dim + 2 * self.item_dim + self.interest.units + self.user_dim
        self.stage_two.build(tf.TensorShape([None, width]))

    def call(
        self, features: Features, training: bool = False, with_objective: bool = False
    ) -> Outputs:
        """Return stage two's logits, and with the objective stage one's and the auxiliary ones."""
        ids = {**features.user, **features.target_item}
        ids |= {name: self.split(column) for name, column in features.positive.items()}
        if with_objective:
            ids |= {name: self.split(column).short for name, column in features.negative.items()}
        vectors = self.embedding(ids, with_gradient=training or with_objective)
        target_item, user = self.join_item_and_user(vectors)  # [batch, dim]
        mask = self.split(features.mask)
        history = [vectors[name] for name in self.channels.positive]
        long = self.join([feature.long for feature in history])  # [batch, long, dim]
        short = self.join([feature.short for feature in history], mask.short)

        found = self.search(features, target_item, long)
        interest = self.attend(features, target_item, long, found, with_objective)
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

    def search(self, features: Features, target_item: tf.Tensor, long: tf.Tensor) -> SearchResult:
        """Run the general search unit: [batch, dim] and [batch, long, dim] to what it found."""
        inputs = [target_item, long, self.split(features.mask).long]
        if self.category is not None:
            of_target, of_history = self.category
            categories = self.split(features.positive[of_history]).long
            inputs += [features.target_item[of_target], categories]
        found: SearchResult = self.general_search(*inputs)
        return found

    def attend(
        self,
        features: Features,
        target_item: tf.Tensor,
        long: tf.Tensor,
        found: SearchResult,
        stage_one: bool,
    ) -> LongInterest:
        """Run the exact search unit on what the search found."""
        interest: LongInterest
        if isinstance(self.exact_search, MultiHeadSearchUnit):
            times = self.time_vectors(features)
            interest = self.exact_search(target_item, long, found, times, stage_one=stage_one)
        else:
            interest = self.exact_search(target_item, long, found, stage_one=stage_one)
        return interest

    def time_vectors(self, features: Features) -> tf.Tensor | None:
        """Return the long history's time vectors, [batch, long, dim]; None without intervals."""
        if self.time_embedding is None:
            return None
        intervals = self.split(features.time_intervals).long
        return self.time_embedding(intervals)


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class SIMModel(InterestModel):
    """SIM as a Merlin model; see :class:`~merlin_sim.models.interest_model.InterestModel`."""

    body_type = SIMBody
