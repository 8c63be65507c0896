"""What the bodies of the three models share: a schema, options, and the feature embedding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Generic

import tensorflow as tf
from merlin.models.tf.core.base import Block
from merlin.models.utils.schema_utils import tensorflow_metadata_json_to_schema
from merlin.schema import Schema

from .blocks.feature_embedding import FeatureEmbedding
from .channels import Channels, Features
from .objective import Outputs
from .options import AnyOptions
from .schema_json import schema_json


class Body(Block, Generic[AnyOptions]):
    """From one batch of ids to a logit, and in training to what the objective needs.

    Args:
        schema: The Merlin schema of all columns, or the JSON that ``get_config`` made of it.
        options: The model's options, or the dictionary that ``get_config`` made of them.
    """

    options_type: ClassVar[type[Any]]
    has_auxiliary_loss: ClassVar[bool] = False
    has_stage_one: ClassVar[bool] = False
    reads_time_intervals: ClassVar[bool] = False
    built: bool

    def __init__(
        self, schema: Schema | str, options: AnyOptions | dict[str, Any], **kwargs: Any
    ) -> None:
        """Check the options and make the layers."""
        super().__init__(autocast=False, **kwargs)
        if isinstance(schema, str):
            schema = tensorflow_metadata_json_to_schema(schema)
        parsed = self.options_type.parse(options) if isinstance(options, dict) else options
        self.options: AnyOptions = parsed
        channels = Channels.read(schema)
        if not self.reads_time_intervals:
            channels = replace(channels, time_intervals=None)
        self.channels = channels
        parsed.check_history(self.channels.history_length)
        self.set_schema(schema)
        dim = parsed.embedding_dim
        self.embedding = FeatureEmbedding(
            schema.select_by_name(list(self.channels.categorical)),
            dim,
            dtype=self._dtype_policy,
            name="embedding",
        )
        self.item_dim = dim * len(self.channels.target_item)
        self.user_dim = dim * len(self.channels.user)
        self.make_blocks()

    def make_blocks(self) -> None:
        """Make the model's own blocks."""
        raise NotImplementedError

    def build_blocks(self) -> None:
        """Create the weights of the model's own blocks."""
        raise NotImplementedError

    def build(self, input_shape: Any = None) -> None:
        """Create all weights; schema and options tell every size."""
        if self.built:
            return
        with tf.name_scope(self.embedding.name):
            self.embedding.build(None)
        self.build_blocks()
        self.built = True

    def call(
        self, features: Features, training: bool = False, with_objective: bool = False
    ) -> Outputs:
        """Return the logits of a batch.

        Args:
            features: One batch, by channel.
            training: Whether dropout applies.
            with_objective: Whether to compute what only the objective needs.
        """
        raise NotImplementedError

    def join(self, vectors: list[tf.Tensor], mask: tf.Tensor | None = None) -> tf.Tensor:
        """Concatenate a channel's vectors: [...] -> [..., dim x features], 0 where masked."""
        joined = tf.concat(vectors, axis=-1)
        if mask is None:
            return joined
        return joined * tf.cast(mask, joined.dtype)[..., tf.newaxis]

    def join_item_and_user(self, vectors: Mapping[str, Any]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the target item's vector, and the user's in a list; empty without features."""
        target_item = self.join([vectors[name] for name in self.channels.target_item])
        user = [vectors[name] for name in self.channels.user]
        return target_item, user

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the body."""
        config = super().get_config()
        config.pop("autocast", None)
        return {
            **config,
            "schema": schema_json(self.schema),
            "options": self.options.to_dict(),
        }
