"""From a batch of columns to vectors of users and of items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import tensorflow as tf
from merlin.schema import Schema

from ..blocks.checks import OptionError
from ..blocks.embeddings.left_padding import LeftPadding
from ..blocks.embeddings.mean_vectors import mean_vectors
from ..blocks.heads.hidden_layers import HiddenLayers
from ..blocks.serialization import register_block
from ..blocks.shapes import as_rows
from ..frame.columns_block import ColumnsBlock
from ..interest.interest_channels import Channels, Features
from .options import TwoTowerOptions
from .place_weights import PlaceWeights


@register_block
class TwoTowerBlock(ColumnsBlock[TwoTowerOptions]):
    """The two towers (https://doi.org/10.1145/3298689.3346996) and the product of their vectors.

    user = unit length(layers of [weighted means of the history, user features]
                       + sum over means of share x P mean)
    item = unit length(layers of [item features] + P item features)

    The history's items and the target share their tables and P, so that from the first step on
    users are near to what is like the items they took. An item's vector is made of the item alone,
    so that the vectors of all items can lie in an index.

    Args:
        schema: The Merlin schema of the dataset, label included, or the JSON that ``get_config``
            made of it.
        options: The model's options, or the dictionary that ``get_config`` made of them.
    """

    options_type = TwoTowerOptions
    channels: Channels

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Check schema and options, and make the layers."""
        super().__init__(*args, **kwargs)
        parsed, channels, policy = self.options, self.channels, self._dtype_policy
        histories = dict.fromkeys(channels.positive, channels.history_length)
        self.padding = LeftPadding(histories, name="left_padding")
        looked_up = [n for n in channels.categorical if n not in channels.negative]
        self.embedding = self.make_embedding(looked_up, parsed.embedding_dim, "embedding")
        width_of = self.embedding.width_of
        self.shared_dim = sum(width_of[name] for name in channels.target_item)
        self.item_dim = self.shared_dim + sum(width_of[name] for name in channels.target_lists)
        self.item_dim += channels.target_numbers_dim
        history_dim = self.shared_dim * parsed.history_weightings
        self.user_dim = history_dim + sum(width_of[name] for name in channels.user)
        self.user_dim += channels.user_numbers_dim
        self.weightings = PlaceWeights(
            parsed.history_weightings, channels.history_length, dtype=policy, name="weightings"
        )
        # What items and histories share; vectors of unit length lose too much in float16.
        self.shared = tf.keras.layers.Dense(
            parsed.tower_dim, use_bias=False, dtype="float32", name="shared"
        )
        self.user_layers, self.user_vector = self._make_tower("user")
        self.item_layers, self.item_vector = self._make_tower("item")

    def _make_tower(self, name: str) -> tuple[HiddenLayers, tf.keras.layers.Dense]:
        policy, options = self._dtype_policy, self.options
        layers = HiddenLayers(options.tower_mlp_dims, dtype=policy, name=f"{name}_layers")
        vector = tf.keras.layers.Dense(options.tower_dim, dtype="float32", name=f"{name}_vector")
        return layers, vector

    def read_channels(self, schema: Schema) -> Channels:
        """Find the columns of each channel; negative histories and time intervals are not read."""
        return replace(Channels.read(schema, self.label), time_intervals=None, negative=())

    @property
    def output_dim(self) -> int:
        """One number: the logit."""
        return 1

    def build(self, input_shape: Any = None) -> None:
        """Create all weights; schema and options tell every size."""
        if self.built:
            return
        with tf.name_scope(self.embedding.name):
            self.embedding.build(None)
        places = self.channels.history_length
        with tf.name_scope("weightings"):
            self.weightings.build(tf.TensorShape([None, places, None]))
        with tf.name_scope("shared"):
            self.shared.build(tf.TensorShape([None, self.shared_dim]))
        self.shares = self.add_weight(
            "shares", [self.options.history_weightings], initializer="ones", dtype=tf.float32
        )
        towers = (
            (self.user_layers, self.user_vector, self.user_dim),
            (self.item_layers, self.item_vector, self.item_dim),
        )
        for layers, vector, dim in towers:
            with tf.name_scope(layers.name):
                layers.build(tf.TensorShape([None, dim]))
            with tf.name_scope(vector.name):
                vector.build(tf.TensorShape([None, layers.output_dim(dim)]))
        self.built = True

    def features(self, columns: Mapping[str, Any]) -> Features:
        """Sort a batch of columns, ragged or padded, into channels.

        Raises:
            OptionError: Naming the columns that are missing.
        """
        self.check_columns(self.channels.missing(columns, False), columns)
        return self.channels.gather(self.padding(columns))

    def forward(self, features: Features, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the vectors of users, [users, dim], and items, [users, candidates, dim]."""
        ids = {**features.user, **features.target_item, **features.positive, **features.listed}
        vectors = self.embedding(ids, with_gradient=training)
        return self._users(features, vectors), self._items(features, vectors)

    def _users(self, features: Features, vectors: Mapping[str, Any]) -> tf.Tensor:
        numbers = features.user_numbers
        of_candidates = any(ids.shape.rank == 2 for ids in features.user.values())
        if of_candidates or (numbers is not None and (numbers.shape[1] or 1) > 1):
            raise OptionError(
                "Features of users, contexts and the numbers beside them should be [users]: a user "
                "has one vector for all candidates. Received: some of [users, candidates]."
            )
        history = tf.concat([vectors[name] for name in self.channels.positive], axis=-1)
        means = self.weightings(history, features.real)
        parts = [means]
        parts += [vectors[name] for name in self.channels.user]
        if numbers is not None:
            parts.append(tf.cast(numbers[:, 0], self.compute_dtype))
        hidden = self.user_layers(tf.concat(parts, axis=-1))
        of_means = tf.reshape(means, [-1, self.options.history_weightings, history.shape[-1]])
        like = tf.tensordot(
            tf.cast(of_means, tf.float32), tf.cast(self.shares, tf.float32), [[1], [0]]
        )
        return tf.math.l2_normalize(self.user_vector(hidden) + self.shared(like), axis=-1)

    def _items(self, features: Features, vectors: Mapping[str, Any]) -> tf.Tensor:
        parts = [vectors[name] for name in self.channels.target_item]
        parts += [mean_vectors(vectors[name], ids) for name, ids in features.listed.items()]
        if features.target_numbers is not None:
            parts.append(tf.cast(features.target_numbers, self.compute_dtype))
        joined = tf.concat(parts, axis=-1)  # [users, candidates, item_dim]
        rows = as_rows(joined)
        own = rows[:, : self.shared_dim]
        vector = self.item_vector(self.item_layers(rows)) + self.shared(own)
        found = tf.math.l2_normalize(vector, axis=-1)
        shape = [-1, tf.shape(joined)[1], self.options.tower_dim]
        return tf.reshape(found, shape)

    def products(self, users: tf.Tensor, items: tf.Tensor) -> tf.Tensor:
        """Return the cosine of users and their candidates over the temperature: [samples, 1]."""
        cosines = tf.matmul(items, users[:, :, tf.newaxis])
        return tf.reshape(cosines / self.options.temperature, [-1, 1])

    def call(
        self,
        inputs: dict[str, Any],
        targets: Any = None,
        training: bool = False,
        testing: bool = False,
    ) -> tf.Tensor:
        """Return the cosine of each sample's vectors over the temperature, [samples, 1].

        Args:
            inputs: One batch of columns.
            targets: Labels, which nothing here depends on.
            training: Whether to prepare the tables for a gradient.
            testing: Merlin's flag of an evaluation step.
        """
        return self.products(*self.forward(self.features(inputs), training))
