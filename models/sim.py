"""Search-based Interest Model (https://arxiv.org/abs/2006.05639), and the frame of its kin."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import tensorflow as tf
from merlin.schema import Schema

from .blocks.attention import SummedAttention, TargetAttention
from .blocks.checks import OptionError, check_choice, require
from .blocks.embeddings.feature_embedding import TimeIntervalEmbedding
from .blocks.mlp import ClassifierMLP
from .blocks.recurrence import AuxiliaryNetwork, InterestEvolution
from .blocks.search.attention_units import DEFAULT_HEADS, ExactSearchUnit, MultiHeadSearchUnit
from .blocks.search.history_split import HistorySplit, SplitHistory
from .blocks.search.search_and_attention import (
    SEARCH_UNITS,
    AttentionUnit,
    LongHistory,
    LongInterest,
    SearchUnit,
    Target,
)
from .blocks.serialization import part_from, register_block
from .blocks.shapes import Size, sizes
from .dien import (
    UNITS_PER_EMBEDDING_DIM,
    ShortWindows,
    attend_to_short,
    auxiliary_of_samples,
)
from .family import ATTENTION
from .interest_block import InterestBlock, InterestModel
from .interest_channels import Features
from .losses import Outputs
from .options import SearchedOptions, SIMOptions

AnySearched = TypeVar("AnySearched", bound=SearchedOptions)


class SearchedBlock(InterestBlock[AnySearched]):
    """Search in the long history, attention over what it found, and the short history.

        stage one = MLP([target, attention over the long history, user])
        hidden    = layers of [attention over the found, their mean, target, short history, user]

    Which search and which attention makes the model. The mean is there where the attention unit
    gives one; of the short history stands DIEN's final state, :class:`TargetAttention`, or nothing;
    the first stage and DIEN's auxiliary loss are trained where there are such.

    Args:
        search_unit: Searches the long history; None for the one that the options call for.
        attention_unit: Attends to what was found; None for the one that the options call for.
    """

    part_names = (*InterestBlock.part_names, "search_unit", "attention_unit")

    def __init__(
        self,
        schema: Schema | str,
        options: AnySearched | dict[str, Any],
        search_unit: SearchUnit | dict[str, Any] | None = None,
        attention_unit: AttentionUnit | dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Check schema, options and units, and make the layers."""
        super().__init__(schema, options, **kwargs)
        search: SearchUnit | None = _unit("search_unit", search_unit, SearchUnit)
        attention: AttentionUnit | None = _unit("attention_unit", attention_unit, AttentionUnit)
        self._has_own_units = (search is not None, attention is not None)
        self.search_unit: SearchUnit = search or self.make_search_unit()
        self.attention_unit: AttentionUnit = attention or self.make_attention_unit()
        self.time_embedding = (
            self._make_time_embedding() if self.attention_unit.reads_times else None
        )

    def make_blocks(self) -> None:
        """Make what reads the short history, and the first classifier."""
        options, policy = self.options, self._dtype_policy
        short_length = self.channels.history_length - options.long_length
        self.split = HistorySplit(options.long_length, short_length, name="split")
        self.has_auxiliary_loss = options.short_history == "dien" and options.auxiliary_loss
        self.interest = self.auxiliary = self.short_attention = self.stage_one = None
        if options.short_history == "dien":
            units = UNITS_PER_EMBEDDING_DIM * options.embedding_dim
            self.interest = InterestEvolution(units, dtype=policy, name="interest")
        if self.has_auxiliary_loss:
            self.auxiliary = AuxiliaryNetwork(
                self.item_dim,
                options.aux_mlp_dims,
                self.auxiliary_dropout_rate,
                dtype=policy,
                name="aux",
            )
        if options.short_history == "attention":
            self.short_attention = self.make_target_attention("short_attention")
        self.sums: SummedAttention | None = None
        if options.attention_sums:
            self.sums = self.make_summed_attention(self.heads)
        if options.stage_one:
            self.stage_one = ClassifierMLP(
                options.stage_one_mlp_dims, options.dropout_rate, dtype=policy, name="stage_one"
            )

    def make_target_attention(self, name: str, time_dim: int = 0) -> TargetAttention:
        """Make attention whose heads share an item vector's length among them."""
        heads = self.heads
        head_dim = -(-self.item_dim // heads)
        return TargetAttention(heads, head_dim, time_dim, dtype=self._dtype_policy, name=name)

    @property
    def auxiliary_dropout_rate(self) -> float | None:
        """Dropout of the auxiliary network: off, but where it is published with one."""
        return None

    @property
    def heads(self) -> int:
        """How many heads attend to the short history, and to the long one where it has heads."""
        options: Any = self.options
        return options.heads or DEFAULT_HEADS

    @property
    def time_dim(self) -> int:
        """Length of the vectors of time intervals; 0 for a dataset without."""
        return 0 if self.channels.time_intervals is None else self.options.embedding_dim

    def make_search_unit(self) -> SearchUnit:
        """Make the search unit that the options call for."""
        raise NotImplementedError

    def make_attention_unit(self) -> AttentionUnit:
        """Make the attention unit that the options call for."""
        raise NotImplementedError

    def _make_time_embedding(self) -> TimeIntervalEmbedding:
        if self.channels.time_intervals is None:
            raise OptionError(
                "`attention_unit` reads time intervals: the schema should have a column of the "
                "channel history_time_intervals. Received: none."
            )
        options: Any = self.options
        return TimeIntervalEmbedding(
            self.options.embedding_dim,
            options.time_buckets,
            dtype=self._dtype_policy,
            name="time_embedding",
        )

    def build_blocks(self) -> None:
        """Create their weights."""
        of_item = tf.TensorShape([None, None, self.item_dim])
        if self.interest is not None:
            self.interest.build(of_item)
            if self.auxiliary is not None:
                self.auxiliary.build(tf.TensorShape([None, self.interest.units]))
        if self.short_attention is not None:
            self.short_attention.build(of_item)
        if self.sums is not None:
            self.sums.build(of_item)
        if self.stage_one is not None:
            self.stage_one.build(tf.TensorShape([None, 2 * self.item_dim + self.user_dim]))
        self.search_unit.build(of_item)
        self.attention_unit.build(of_item)
        if self.time_embedding is not None:
            self.time_embedding.build(None)

    @property
    def classified_dim(self) -> int:
        """Length of attention, mean, target, short history, sums, further features and user."""
        attended = self.attention_unit.attended_dim(self.item_dim)
        items = 1 + int(self.attention_unit.has_mean)
        width: int = attended + items * self.item_dim + self._short_dim + self.user_dim
        width += 0 if self.sums is None else self.sums.summed_dim
        return width + self.further_dim

    @property
    def _short_dim(self) -> int:
        if self.interest is not None:
            return int(self.interest.units)
        return 0 if self.short_attention is None else self.short_attention.attended_dim

    def forward(
        self, features: Features, training: bool = False, with_objective: bool = False
    ) -> Outputs:
        """Return the last hidden layer, and with the objective stage one's and auxiliary logits."""
        with_negatives = with_objective and self.has_auxiliary_loss
        vectors = self.embed(features, with_negatives, with_gradient=training or with_objective)
        target, history = self.target_and_history(features, vectors)
        windows = self._short_windows(features)
        mask = windows.cut(features.real)
        items = self.join([vectors[n].short for n in self.channels.positive])
        short = windows.masked(items, mask)

        found = self.search_unit(target, history)
        item = self.join_target(vectors)  # the target's vector, unless attention has another
        interest: LongInterest = self.attention_unit(
            target, history, found, stage_one=with_objective and self.options.stage_one
        )
        parts = [interest.attended, interest.mean, item]
        evolution = None
        if self.interest is not None:
            evolution = self.interest(item, short, mask, windows.in_shared_span)
            parts.append(evolution.final_state)
        elif self.short_attention is not None:
            parts.append(attend_to_short(self.short_attention, item, short, mask))
        if self.sums is not None:
            parts.append(self.sums(item, history.taken, history.mask))
        parts += self.further(features, vectors)
        rows = self.join_rows([part for part in parts if part is not None], vectors)
        hidden = self.classifier(rows, training=training)
        stage_one_logits = auxiliary = None
        if interest.searched is not None and self.stage_one is not None:
            rows = self.join_rows([item, interest.searched], vectors)
            stage_one_logits = self.stage_one(rows, training=training)
        if with_objective and evolution is not None and self.auxiliary is not None:
            negative = self.join([vectors[n] for n in self.channels.negative])
            negative = windows.masked(negative, mask)
            auxiliary = auxiliary_of_samples(
                self.auxiliary, evolution, short, negative, mask, training, windows.in_shared_span
            )
        return Outputs(hidden, stage_one_logits, auxiliary)

    def embed(
        self, features: Features, with_negatives: bool = False, with_gradient: bool = True
    ) -> dict[str, Any]:
        """Look a batch up; of a history both parts, of a negative one the short part alone."""
        ends, windows = features.window_ends, self._short_windows(features)
        ids = {**features.user, **features.target_item, **features.lists}
        ids |= {
            name: SplitHistory(self.split(column, ends).long, windows.ids(column))
            for name, column in features.positive.items()
        }
        if with_negatives:
            ids |= {name: windows.ids(column) for name, column in features.negative.items()}
        return self.look_up(ids, with_gradient=with_gradient)

    def _short_windows(self, features: Features) -> ShortWindows:
        return ShortWindows.of(self.split, features.window_ends, self.options.one_pass)

    def target_and_history(
        self, features: Features, vectors: dict[str, Any]
    ) -> tuple[Target, LongHistory]:
        """Return what the units read of a batch that was looked up."""
        long = self.join([vectors[name].long for name in self.channels.positive])
        mask = self.split.masks(features.real, features.seen_until).long
        ids = {
            target: self.split(features.positive[history], features.ends).long
            for target, history in self.channels.history_of.items()
        }
        times = self._time_vectors(features, sizes(mask)[-1])
        if self.attention_embedding is None:
            history = LongHistory(long, mask, ids, times)
            return Target(self.join_target(vectors), features.target_item), history
        found_by = self.join([vectors[name + ATTENTION] for name in self.channels.positive])
        history = LongHistory(found_by, mask, ids, times, values=long)
        return Target(self.join_target(vectors, ATTENTION), features.target_item), history

    def _time_vectors(self, features: Features, long: Size) -> tf.Tensor | None:
        if self.time_embedding is None or features.time_intervals is None:
            return None
        return self.time_embedding(features.time_intervals[..., :long])

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block, the units that were passed in included."""
        own_search, own_attention = self._has_own_units
        serialize = tf.keras.layers.serialize
        return {
            **super().get_config(),
            "search_unit": serialize(self.search_unit) if own_search else None,
            "attention_unit": serialize(self.attention_unit) if own_attention else None,
        }


def _unit(option: str, unit: Any, kind: type[Any]) -> Any:
    unit = part_from(unit)
    require(unit is None or isinstance(unit, kind), option, f"be a {kind.__name__} or None", unit)
    return unit


class SearchedModel(InterestModel):
    """A model that searches a long history; see :class:`~.interest_block.InterestModel`.

    ``from_schema`` and the constructor take ``search_unit`` and ``attention_unit`` too, as
    :class:`SearchedBlock` has them.
    """

    has_search: ClassVar[bool] = True
    """Whether it searches a long history, of which a report shows what the search keeps."""


@register_block
class SIMBlock(SearchedBlock[SIMOptions]):
    """Search by score or category, attention over what it found, DIEN over the short history."""

    options_type = SIMOptions
    reads_time_intervals = True

    def make_blocks(self) -> None:
        """Check the category and make the frame's blocks."""
        if self.options.category_feature is not None:
            category = self.options.category_feature
            check_choice("category_feature", category, self.channels.target_item)
        super().make_blocks()

    @property
    def auxiliary_dropout_rate(self) -> float | None:
        """Dropout of the auxiliary network: that of the classifiers, as published."""
        return self.options.dropout_rate

    def make_search_unit(self) -> SearchUnit:
        """Make the search unit that ``search`` names."""
        unit = SEARCH_UNITS[self.options.search]
        return unit.from_options(self.options, dtype=self._dtype_policy, name="search_unit")

    def make_attention_unit(self) -> AttentionUnit:
        """Make the attention unit: of several heads where there are times or ``heads``."""
        policy = self._dtype_policy
        if self.options.heads is None and not self.time_dim:
            return ExactSearchUnit(dtype=policy, name="attention_unit")
        return MultiHeadSearchUnit(
            self.heads, self.item_dim, self.time_dim, dtype=policy, name="attention_unit"
        )


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class SIMModel(SearchedModel):
    """SIM as a Merlin model; see :class:`SearchedModel`."""

    body_type = SIMBlock
