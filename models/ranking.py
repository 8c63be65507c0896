"""DLRM and DCNv2: what numbers and categories say about a click."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import tensorflow as tf
from merlin.schema import Schema

from ..schemas.channels import CATEGORICAL, LABEL, NUMERICAL, PLAIN_ROWS
from .block_model import BlockModel, ColumnsBlock
from .blocks.checks import OptionError
from .blocks.embeddings.left_padding import LeftPadding
from .blocks.embeddings.sharded_tables import current_sharding
from .blocks.interactions import CrossLayers, DotInteraction, number_of_pairs
from .blocks.mlp import ReLULayers, published_dense
from .blocks.serialization import register_block
from .blocks.shapes import as_ids
from .loader_steps import Graphs
from .losses import Outputs, TotalLoss
from .options import AnyRankingOptions, DCNv2Options, DLRMOptions


class RankingFeatures(NamedTuple):
    """One batch, by channel."""

    numerical: tf.Tensor | None
    """The numbers, [batch, features], float32; None where there are none."""
    categorical: dict[str, tf.Tensor]
    """Ids by column, each [batch]."""


@dataclass(frozen=True)
class RankingChannels:
    """The columns of a dataset of plain rows."""

    label: str
    numerical: tuple[str, ...]
    """Columns of numbers; may be none."""
    categorical: tuple[str, ...]
    """Columns of ids, each with a table of its own."""
    schema: Schema

    @classmethod
    def read(cls, schema: Schema) -> RankingChannels:
        """Read the channels from the tags of a Merlin schema."""
        found = PLAIN_ROWS.require(schema, "The dataset")
        numerical, categorical = found.get(NUMERICAL, ()), found[CATEGORICAL]
        return cls(found[LABEL][0], tuple(numerical), tuple(categorical), schema)

    @property
    def served(self) -> tuple[str, ...]:
        """The columns that inference reads."""
        return (*self.categorical, *self.numerical)

    @property
    def inputs(self) -> Schema:
        """The schema of what inference reads."""
        return self.schema.select_by_name(list(self.served))

    def missing(self, columns: Mapping[str, Any], with_negatives: bool = False) -> list[str]:
        """Name the columns that are not there; plain rows have no negatives."""
        return [name for name in self.served if name not in columns]

    def gather(self, columns: Mapping[str, Any]) -> RankingFeatures:
        """Sort a batch's columns, [batch] or [batch, 1], into channels."""
        numbers = [tf.reshape(tf.cast(columns[name], tf.float32), [-1]) for name in self.numerical]
        ids = {name: tf.reshape(as_ids(columns[name]), [-1]) for name in self.categorical}
        return RankingFeatures(tf.stack(numbers, axis=1) if numbers else None, ids)


class RankingBlock(ColumnsBlock[AnyRankingOptions]):
    """From a batch of columns to the last hidden layer, as any Merlin model chains it.

        model = mm.Model(DLRMBlock.from_schema(schema), mm.BinaryOutput("label"))

    hidden = top layers of join(bottom layers of the numbers, one vector for each category)
    """

    channels: RankingChannels

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        parsed = self.options
        names, policy = list(self.channels.categorical), self._dtype_policy
        self.width_of = dict(zip(names, parsed.widths(names), strict=True))
        self.embeddings = [
            self.make_embedding(
                [name for name in names if self.width_of[name] == width],
                width,
                f"embedding_{width}",
            )
            for width in dict.fromkeys(self.width_of.values())
        ]
        self._check_widths()
        self.padding = LeftPadding({}, name="as_it_is")  # plain rows have no histories
        self.bottom = ReLULayers(
            parsed.bottom_mlp_dims if self.channels.numerical else (), dtype=policy, name="bottom"
        )
        self.top = ReLULayers(parsed.top_mlp_dims[:-1], dtype=policy, name="top")
        sharding = current_sharding()
        self._compiles = sharding is not None and sharding.compiles
        self._graphs = Graphs()
        self.make_blocks()

    def read_channels(self, schema: Schema) -> RankingChannels:
        """Find the columns of each channel."""
        return RankingChannels.read(schema)

    def _check_widths(self) -> None:
        """Refuse a table that was given with vectors of another length."""
        for embedding in self.embeddings:
            for name, width in embedding.width_of.items():
                if width != self.width_of[name]:
                    raise OptionError(
                        f"`tables`: the table of {name!r} should have vectors of the length "
                        f"{self.width_of[name]}, as the options say. Received: {width}."
                    )

    def make_blocks(self) -> None:
        """Make what joins the vectors."""
        raise NotImplementedError

    def build_blocks(self) -> None:
        """Create the weights of what joins the vectors."""

    def join(self, vectors: list[tf.Tensor]) -> tf.Tensor:
        """Make one vector of the bottom layers' and the categories': [batch, joined_dim]."""
        raise NotImplementedError

    @property
    def joined_dim(self) -> int:
        """Length of what the top layers read."""
        raise NotImplementedError

    @property
    def vector_dims(self) -> list[int]:
        """Lengths of the vectors that are joined, the bottom layers' first where there are any."""
        bottom = [self.bottom.hidden_dims[-1]] if self.channels.numerical else []
        return [*bottom, *self.width_of.values()]

    @property
    def output_dim(self) -> int:
        """Length of the last hidden layer."""
        return self.top.output_dim(self.joined_dim)

    def build(self, input_shape: Any = None) -> None:
        """Create all weights; schema and options give every size."""
        if self.built:
            return
        for embedding in self.embeddings:
            with tf.name_scope(embedding.name):
                embedding.build(None)
        with tf.name_scope("bottom"):
            self.bottom.build(tf.TensorShape([None, len(self.channels.numerical)]))
        self.build_blocks()
        with tf.name_scope("top"):
            self.top.build(tf.TensorShape([None, self.joined_dim]))
        self.built = True

    def forward(self, features: RankingFeatures, training: bool = False) -> tf.Tensor:
        """Return the last hidden layer of a batch, [batch, output_dim]."""
        found: dict[str, tf.Tensor] = {}
        for embedding in self.embeddings:
            ids = {name: features.categorical[name] for name in embedding.domain_of}
            found |= embedding(ids, with_gradient=training)
        vectors = [found[name] for name in self.channels.categorical]
        after_lookups = self._after_lookups
        if self._compiles:
            after_lookups = self._graphs.get(
                "after lookups",
                lambda: tf.function(self._after_lookups, jit_compile=True, autograph=False),
            )
        hidden: tf.Tensor = after_lookups(features.numerical, vectors)
        return hidden

    def _after_lookups(self, numerical: tf.Tensor | None, vectors: list[tf.Tensor]) -> tf.Tensor:
        if numerical is not None:
            numbers = tf.cast(numerical, self.compute_dtype)
            vectors = [self.bottom(numbers), *vectors]
        return self.top(self.join(vectors))

    def call(
        self,
        inputs: dict[str, Any],
        targets: Any = None,
        training: bool = False,
        testing: bool = False,
    ) -> tf.Tensor:
        """Return the last hidden layer of a batch."""
        return self.forward(self.features(inputs), training=training)


class RankingModel(BlockModel):
    """A model of numbers and categories, whose logit has the published starting values."""

    body_type: ClassVar[type[RankingBlock[Any]]]
    body: RankingBlock[Any]

    @staticmethod
    def make_logit() -> tf.keras.layers.Layer:
        """Make the layer of the logit, with the published starting values."""
        return published_dense(1, None, dtype="float32", name="logit")

    def forward(self, columns: dict[str, Any], training: bool = False) -> Outputs:
        """Return the logits of a batch; ``training`` prepares the tables for a gradient."""
        hidden = self.body.forward(self.body.features(columns), training=training)
        return Outputs(hidden, logits=self.output_block.to_call(hidden))

    def compute_step(
        self,
        columns: dict[str, Any],
        labels: tf.Tensor,
        sample_weight: tf.Tensor | None = None,
        training: bool = True,
    ) -> tuple[TotalLoss, tf.Tensor]:
        """Return the loss of a batch by name, and its logits."""
        logits = self.forward(columns, training=training).logits
        loss = self.evaluated_loss.cost(labels, logits, sample_weight)
        weight = self.evaluated_loss.weight
        losses = TotalLoss(loss if weight is None else weight * loss)
        return self.regularized(losses), logits


@register_block
class DLRMBlock(RankingBlock[DLRMOptions]):
    """Dot products of all pairs of vectors, behind what the bottom layers gave.

    ``mm.DLRMBlock`` orders vectors by their names and takes the pairs of the upper triangle: the
    published weights of the top layers would meet other products. It gives each column a gradient.
    """

    options_type = DLRMOptions

    def make_blocks(self) -> None:
        """Make the interaction."""
        self.interaction = DotInteraction(dtype=self._dtype_policy, name="interaction")

    def join(self, vectors: list[tf.Tensor]) -> tf.Tensor:
        """Return [bottom, products of pairs]."""
        products = self.interaction(tf.stack(vectors, axis=1))  # [batch, pairs]
        bottom = vectors[:1] if self.channels.numerical else []
        return tf.concat([*bottom, products], axis=1)

    @property
    def joined_dim(self) -> int:
        """Length of the bottom layers' vector, and number of pairs."""
        bottom = self.options.embedding_dim if self.channels.numerical else 0
        return bottom + number_of_pairs(len(self.vector_dims))


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class DLRMModel(RankingModel):
    """DLRM as a Merlin model; see :class:`RankingModel`."""

    body_type = DLRMBlock


@register_block
class DCNv2Block(RankingBlock[DCNv2Options]):
    """Cross layers over all vectors side by side, whatever their lengths."""

    options_type = DCNv2Options

    def make_blocks(self) -> None:
        """Make the cross layers."""
        options, policy = self.options, self._dtype_policy
        self.cross = CrossLayers(
            options.cross_layers, options.cross_rank, dtype=policy, name="cross"
        )

    def build_blocks(self) -> None:
        """Create their weights."""
        with tf.name_scope("cross"):
            self.cross.build(tf.TensorShape([None, self.joined_dim]))

    def join(self, vectors: list[tf.Tensor]) -> tf.Tensor:
        """Return the crossed vectors, as long as they are together."""
        return self.cross(tf.concat(vectors, axis=1))

    @property
    def joined_dim(self) -> int:
        """Length of all vectors together."""
        return sum(self.vector_dims)


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class DCNv2Model(RankingModel):
    """DCNv2 as a Merlin model; see :class:`RankingModel`."""

    body_type = DCNv2Block
