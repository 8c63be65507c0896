"""What the blocks of DLRM and DCNv2 share: columns in, the last hidden layer out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from merlin.schema import Schema

from ..blocks.checks import OptionError
from ..blocks.embeddings.spread_tables import current_spread
from ..blocks.heads.relu_layers import ReLULayers
from ..frame.columns_block import ColumnsBlock
from .options import AnyOptions
from .ranking_channels import RankingChannels, RankingFeatures


class RankingBlock(ColumnsBlock[AnyOptions]):
    """From a batch of columns to the last hidden layer, as any Merlin model chains it.

        model = mm.Model(DLRMBlock.from_schema(schema), mm.BinaryOutput("label"))

    hidden = top layers of join(bottom layers of the numbers, one vector for each category)

    Args:
        schema: The Merlin schema of the dataset, label included, or the JSON that ``get_config``
            made of it.
        options: The model's options, or the dictionary that ``get_config`` made of them.
    """

    channels: RankingChannels

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Check schema and options, and make the layers."""
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
        self.bottom = ReLULayers(
            parsed.bottom_mlp_dims if self.channels.numerical else (), dtype=policy, name="bottom"
        )
        self.top = ReLULayers(parsed.top_mlp_dims[:-1], dtype=policy, name="top")
        spread = current_spread()
        self._compiles = spread is not None and spread.compiles
        self.make_blocks()

    def read_channels(self, schema: Schema) -> RankingChannels:
        """Find the columns of each channel."""
        return RankingChannels.read(schema, self.label)

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
        bottom = [self.bottom.dims[-1]] if self.channels.numerical else []
        return [*bottom, *self.width_of.values()]

    @property
    def output_dim(self) -> int:
        """Length of the last hidden layer."""
        return self.top.output_dim(self.joined_dim)

    def build(self, input_shape: Any = None) -> None:
        """Create all weights; schema and options tell every size."""
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

    def features(self, columns: Mapping[str, Any]) -> RankingFeatures:
        """Sort a batch of columns into channels.

        Raises:
            OptionError: Naming the columns that are missing.
        """
        missing = [name for name in self.channels.served if name not in columns]
        self.check_columns(missing, columns)
        return self.channels.gather(columns)

    def forward(self, features: RankingFeatures, training: bool = False) -> tf.Tensor:
        """Return the last hidden layer of a batch, [batch, output_dim]."""
        found: dict[str, tf.Tensor] = {}
        for embedding in self.embeddings:
            ids = {name: features.categorical[name] for name in embedding.domain_of}
            found |= embedding(ids, with_gradient=training)
        vectors = [found[name] for name in self.channels.categorical]
        after_lookups = self._after_lookups
        if self._compiles:
            after_lookups = tf.function(after_lookups, jit_compile=True, autograph=False)
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
        """Return the last hidden layer of a batch.

        Args:
            inputs: One batch of columns.
            targets: Labels, which nothing here depends on.
            training: Whether to prepare the tables for a gradient.
            testing: Merlin's flag of an evaluation step.
        """
        return self.forward(self.features(inputs), training=training)
