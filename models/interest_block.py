"""Base of DIN, DIEN, SIM and its kin: a block, and a Merlin model of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from merlin.schema import Schema

from ..foundation.batch_names import HISTORY_END, HISTORY_SUMMARY
from ..parallel.steps.sample_batch import weights_over_counted
from ..schemas.channels import NEGATIVE_HISTORY, domain_of
from .block_model import BlockModel, ColumnsBlock
from .blocks.attention import SummedAttention
from .blocks.checks import OptionError
from .blocks.embeddings.feature_embedding import FeatureEmbedding, mean_vectors
from .blocks.embeddings.left_padding import LeftPadding
from .blocks.history_counts import BINS, HistoryCounts, HistorySimilarity
from .blocks.history_prototypes import HistoryPrototypes
from .blocks.mlp import HiddenLayers
from .blocks.number_pieces import NumberPieces
from .blocks.search.history_split import HistorySplit, SplitHistory
from .blocks.shapes import as_ids, as_rows, repeat_candidates, repeat_per_candidate, sizes
from .composed_model import join_step, weigh_composed_models
from .family import ATTENTION
from .interest_channels import Channels, Features
from .losses import Outputs, StepLosses, evaluated_share, inner_losses, step_losses
from .options import AnyModelOptions

weigh_composed_models()


class InterestBlock(ColumnsBlock[AnyModelOptions]):
    """From a batch of columns to the last hidden layer, as any Merlin model chains it.

        model = mm.Model(SIMBlock.from_schema(schema), mm.BinaryOutput("label"))

    Columns are chosen from the schema by their tags and may come in any form that Merlin's loader
    or ``PrepareFeatures`` gives them. With targets, the losses of what is within the block (SIM's
    first stage, DIEN's auxiliary network) are added to the model's, with the batch's sample
    weights, and the output's loss counts as in the published objective; without them nothing of
    the objective is computed.
    """

    channels: Channels
    has_auxiliary_loss: bool = False
    reads_time_intervals: ClassVar[bool] = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.whole_channels = self.channels
        recent = self.options.recent_within(self.channels.history_length)
        self.channels = replace(self.channels, history_length=recent)
        self.options = self.options.for_history(recent)
        self.padding = LeftPadding(self.whole_channels.histories, name="left_padding")
        dim = self.options.embedding_dim
        self.embedding = self.make_embedding(self.channels.categorical, dim, "embedding")
        width_of = self.embedding.width_of
        self.attention_embedding = self._make_attention_embedding()
        self.item_dim: int = sum(width_of[name] for name in self.channels.target_item)
        self.user_dim: int = sum(width_of[name] for name in self.channels.user)
        self.counts: HistoryCounts | None = None
        if self.options.history_counts:
            length = self.channels.history_length
            self.counts = HistoryCounts(length, dtype=self._dtype_policy, name="counts")
        self.pieces: NumberPieces | None = None
        if self.options.number_pieces is not None:
            pieces = self.options.number_pieces
            numbers = (*self.channels.user_numerical, *self.channels.target_numerical)
            if all(self.channels.is_of_vector(numbers)):
                raise OptionError(
                    "`number_pieces` cuts single numbers of the user and the target item: the "
                    f"schema should have some. Received: `number_pieces` = {pieces}, and of "
                    f"numbers and vectors {', '.join(numbers) or 'none'}."
                )
            self.pieces = NumberPieces(pieces, dtype=self._dtype_policy, name="pieces")
        self.similarity: HistorySimilarity | None = None
        if self.options.history_similarity:
            self.similarity = HistorySimilarity(dtype=self._dtype_policy, name="similarity")
        self.prototypes: HistoryPrototypes | None = None
        if self.options.history_prototypes is not None:
            self.prototypes = HistoryPrototypes(
                self.options.history_prototypes,
                head_dim=-(-self.item_dim // 4),
                dtype=self._dtype_policy,
                name="prototypes",
            )
        self.make_blocks()
        self._check_negatives()
        self.classifier = HiddenLayers(
            self.options.stage_two_mlp_dims,
            self.options.dropout_rate,
            dtype=self._dtype_policy,
            name="classifier",
        )

    def read_channels(self, schema: Schema) -> Channels:
        """Find the columns of each channel; time intervals only where the model reads them."""
        channels = Channels.read(schema)
        return channels if self.reads_time_intervals else replace(channels, time_intervals=None)

    def _make_attention_embedding(self) -> FeatureEmbedding | None:
        """Make a second table for each item feature, where search and attention have their own."""
        if not getattr(self.options, "separate_attention", False):
            return None
        schema = self.channels.schema
        items = [schema[n] for n in (*self.channels.target_item, *self.channels.positive)]
        tables = [
            item.with_properties({"domain": {**item.properties["domain"], "name": of_attention}})
            for item in items
            for of_attention in [domain_of(item) + ATTENTION]
        ]
        # As wide as the table beside it, which may be one that was given.
        dims = {domain_of(item) + ATTENTION: self.embedding.width_of[item.name] for item in items}
        return FeatureEmbedding(
            Schema(tables),
            self.options.embedding_dim,
            dims=dims,
            dtype=self._dtype_policy,
            name="attention_embedding",
        )

    def _check_negatives(self) -> None:
        if self.has_auxiliary_loss and not self.channels.negative:
            raise OptionError(
                "The auxiliary loss reads the negative history: the schema should have a column of "
                f"{NEGATIVE_HISTORY} for each of {', '.join(self.channels.target_item)}. "
                "Received: none. Without such columns set `auxiliary_loss` to false."
            )

    def make_blocks(self) -> None:
        """Make the model's own blocks."""
        raise NotImplementedError

    def build_blocks(self) -> None:
        """Create the weights of the model's own blocks."""
        raise NotImplementedError

    @property
    def classified_dim(self) -> int:
        """Length of what the classifier reads."""
        raise NotImplementedError

    @property
    def output_dim(self) -> int:
        """Length of the last hidden layer."""
        return self.classifier.output_dim(self.classified_dim)

    def build(self, input_shape: Any = None) -> None:
        """Create all weights; schema and options give every size."""
        if self.built:
            return
        with tf.name_scope(self.embedding.name):
            self.embedding.build(None)
        if self.attention_embedding is not None:
            self.attention_embedding.build(None)
        self.build_blocks()
        if self.similarity is not None:
            self.similarity.build(None)
        if self.prototypes is not None:
            self.prototypes.build(tf.TensorShape([None, None, self.item_dim]))
        self.classifier.build(tf.TensorShape([None, self.classified_dim]))
        self.built = True

    def gather(self, columns: Mapping[str, Any]) -> Features:
        """Sort padded columns into channels, and summarise the whole histories.

        A batch may bring their summaries, [users, prototypes x (dim + 1)], under the name of
        :data:`~merlin_sim.foundation.batch_names.HISTORY_SUMMARY`.
        """
        features = self.whole_channels.gather(columns)
        if self.prototypes is not None:
            summary = columns.get(HISTORY_SUMMARY)
            if summary is None:
                summary = self.summarize(features.positive, features.window_ends)
            else:
                of_one = [1, self.prototypes.prototypes, self.item_dim + 1]
                summary = tf.reshape(summary, [-1, *of_one])
            features = features._replace(summary=summary)
        return features.newest(self.channels.history_length)

    def summarize(
        self, positive: Mapping[str, tf.Tensor], window_ends: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Return the summaries of whole histories: [users, windows, prototypes, dim + 1], float32.

        The tables have no gradient of it: of a whole history it would have a row for each position.

        Args:
            positive: The history, feature by feature, each [users, positions].
            window_ends: As of :class:`Features`.
        """
        assert self.prototypes is not None
        found = self.embedding(positive, with_gradient=False)
        history = tf.stop_gradient(self.join([found[name] for name in self.channels.positive]))
        real = positive[self.channels.positive[0]] > 0
        windows = HistorySplit(self.whole_channels.history_length, 0)
        return self.prototypes.summarize(history, windows.masks(real, window_ends).long)

    def forward(
        self, features: Features, training: bool = False, with_objective: bool = False
    ) -> Outputs:
        """Return the last hidden layer of a batch, and what the objective needs if asked for it.

        It is the one way from columns to the hidden layer: of plain rows, of several candidates
        for each user, of one user's thousand. What depends on the user alone is computed once for
        all candidates.
        """
        raise NotImplementedError

    def call(
        self,
        inputs: dict[str, Any],
        targets: Any = None,
        training: bool = False,
        testing: bool = False,
    ) -> tf.Tensor:
        """Return the last hidden layer of a batch; with targets, add the inner losses."""
        with_objective = targets is not None
        needs_negatives = with_objective and self.has_auxiliary_loss
        features = self.features(inputs, with_negatives=needs_negatives)
        outputs = self.forward(features, training=training, with_objective=with_objective)
        if with_objective:
            self._add_inner_losses(outputs, targets)
        return outputs.hidden

    def _add_inner_losses(self, outputs: Outputs, targets: Any) -> None:
        if outputs.stage_one_logits is None and outputs.auxiliary is None:
            return
        label = self.channels.label
        labels = targets[label] if isinstance(targets, dict) else targets
        sample_weight = join_step(label, evaluated_share(outputs))
        for loss in inner_losses(outputs, labels, sample_weight):
            self.add_loss(loss)

    def look_up(self, ids: Mapping[str, Any], with_gradient: bool) -> dict[str, Any]:
        """Look a batch up: column -> vectors.

        Where attention has tables of its own, their vectors stand beside, of a column under its
        name and :data:`ATTENTION`; of a split history those of the long part.
        """
        vectors: dict[str, Any] = self.embedding(ids, with_gradient=with_gradient)
        if self.attention_embedding is not None:
            items = {n: ids[n] for n in self.attention_embedding.domain_of}
            items = {n: i.long if isinstance(i, SplitHistory) else i for n, i in items.items()}
            found = self.attention_embedding(items, with_gradient=with_gradient)
            vectors |= {name + ATTENTION: of_item for name, of_item in found.items()}
        return vectors

    def make_summed_attention(self, heads: int = 4) -> SummedAttention:
        """Make attention without a softmax, whose heads share an item vector's length."""
        head_dim = -(-self.item_dim // heads)
        return SummedAttention(heads, head_dim, dtype=self._dtype_policy, name="sums")

    @property
    def further_dim(self) -> int:
        """Length of what :meth:`further` gives."""
        channels, features = self.channels, len(self.channels.positive)
        counts = 0 if self.counts is None else self.counts.counts_dim(features)
        lists = sum(self.embedding.width_of[name] for name in channels.target_lists)
        counts += 0 if self.similarity is None else BINS
        counts += 0 if self.prototypes is None else self.prototypes.attended_dim
        numbers = channels.is_of_vector((*channels.user_numerical, *channels.target_numerical))
        of_one = 1 if self.pieces is None else self.pieces.pieces
        return int(counts + lists + sum(1 if of_vector else of_one for of_vector in numbers))

    def further(self, features: Features, vectors: Mapping[str, Any]) -> list[tf.Tensor]:
        """Return what the last classifier alone reads of the candidates besides their vectors.

        How often and how recently their features occur, how many positions are how similar, and
        what the history's summary has, if the model reads it; of their lists the mean of each one's
        vectors; their numbers, and those of the user.

        Returns:
            Parts of [users, candidates, dim]; none where the data has no such features.
        """
        parts = []
        if self.counts is not None:
            history = {name: features.positive[n] for name, n in self.channels.history_of.items()}
            parts.append(self.counts(features.target_item, history, features.real, features.ends))
        if self.similarity is not None:
            parts.append(self._count_similar(self.similarity, features, vectors))
        if self.prototypes is not None:
            parts.append(self.prototypes(self.join_target(vectors), features.summary))
        for name, ids in features.lists.items():
            parts.append(mean_vectors(vectors[name], ids))
        if features.target_numbers is not None:
            parts.append(
                self._encode_numbers(features.target_numbers, self.channels.target_numerical)
            )
        if features.user_numbers is not None:
            numbers = self._encode_numbers(features.user_numbers, self.channels.user_numerical)
            first = next(iter(features.target_item.values()))
            parts.append(repeat_candidates(numbers, sizes(first)[1]))
        return parts

    def _encode_numbers(self, numbers: tf.Tensor, columns: Sequence[str]) -> tf.Tensor:
        """Return some columns' numbers as the classifier reads them; vectors are not cut."""
        if self.pieces is None:
            return tf.cast(numbers, self.compute_dtype)
        is_of_vector = np.array(self.channels.is_of_vector(columns))
        single, others = np.flatnonzero(~is_of_vector), np.flatnonzero(is_of_vector)
        vectors = tf.cast(tf.gather(numbers, others, axis=-1), self.compute_dtype)
        return tf.concat([self.pieces(tf.gather(numbers, single, axis=-1)), vectors], axis=-1)

    def _count_similar(
        self, similarity: HistorySimilarity, features: Features, vectors: Mapping[str, Any]
    ) -> tf.Tensor:
        # Looked up once more: a model may have looked up a part of what a candidate sees, or parts.
        found = self.embedding(features.positive, with_gradient=False)
        history = self.join([found[name] for name in self.channels.positive])
        whole = HistorySplit(self.channels.history_length, 0)
        mask = whole.masks(features.real, features.seen_until).long
        return similarity(self.join_target(vectors), history, mask)

    def join(self, vectors: list[tf.Tensor]) -> tf.Tensor:
        """Concatenate a channel's vectors: [..., dim] each -> [..., dim x features]."""
        return tf.concat(vectors, axis=-1)

    def join_target(self, vectors: Mapping[str, Any], tables: str = "") -> tf.Tensor:
        """Return the candidates' vectors in some tables: [users, candidates, dim]."""
        return self.join([vectors[name + tables] for name in self.channels.target_item])

    def join_rows(self, parts: list[tf.Tensor], vectors: Mapping[str, Any]) -> tf.Tensor:
        """Put candidates' vectors, and their user's, side by side: [samples, all dims]."""
        candidates = sizes(parts[0])[1]
        user = [vectors[name] for name in self.channels.user]
        rows = [
            as_rows(v) if v.shape.rank == 3 else repeat_per_candidate(v, candidates) for v in user
        ]
        return tf.concat([*(as_rows(part) for part in parts), *rows], axis=-1)


class InterestModel(BlockModel):
    """A model that ``compile`` and ``fit``, as they are, train by the published objective.

    That has losses besides that of the evaluated logit (the first stage's, the auxiliary
    network's); at inference none of them is computed, and no negative histories are needed.
    """

    body_type: ClassVar[type[InterestBlock[Any]]]
    body: InterestBlock[Any]
    takes_candidates: ClassVar[bool] = True

    @staticmethod
    def inner_losses_of(body: Any) -> tuple[str, ...]:
        """Return the names of the losses besides that of the logit."""
        return StepLosses._fields[1:] if body.has_auxiliary_loss else ()

    @property
    def summary_dim(self) -> int:
        """Length of a history's summary; 0 where the model reads none."""
        prototypes: HistoryPrototypes | None = self.body.prototypes
        return 0 if prototypes is None else prototypes.prototypes * (self.body.item_dim + 1)

    def summarize(self, columns: dict[str, Any]) -> tf.Tensor:
        """Return the summary of each row's history, of a batch with one: [rows, summary_dim].

        That of a history is the sum of those of its parts.
        """
        padded = self.body.padding(columns)
        positive = {name: as_ids(padded[name]) for name in self.channels.positive}
        return tf.reshape(self.body.summarize(positive), [-1, self.summary_dim])

    @property
    def training_columns(self) -> tuple[str, ...]:
        """What training reads of each row, label included."""
        negative = self.channels.negative if self.body.has_auxiliary_loss else ()
        return (self.label, *self.served_columns, *negative)

    @property
    def negatives_read(self) -> int | None:
        """How many of the newest positions of a negative history the model reads; None for all."""
        split = getattr(self.body, "split", None)
        return None if split is None else int(split.short_length)

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
        features = self.body.features(columns, with_negatives=needs_negatives)
        outputs = self.body.forward(features, training=training, with_objective=with_objective)
        return outputs._replace(logits=self.output_block.to_call(outputs.hidden))

    def compute_step(
        self,
        columns: dict[str, Any],
        labels: tf.Tensor,
        sample_weight: tf.Tensor | None = None,
        training: bool = True,
    ) -> tuple[StepLosses, tf.Tensor]:
        """Return the losses of a batch by name, and its evaluated logits."""
        if HISTORY_END in columns:
            sample_weight = weights_over_counted(sample_weight)
        outputs = self.forward(columns, training=training, with_objective=True)
        losses = step_losses(outputs, labels, sample_weight, self.evaluated_loss)
        return self.regularized(losses), outputs.logits
