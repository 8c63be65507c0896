"""Two towers, for retrieval: vectors of users and of items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from merlin.schema import Schema

from .block_model import BlockModel, ColumnsBlock
from .blocks.attention import masked_softmax
from .blocks.checks import OptionError, check_positive
from .blocks.embeddings.feature_embedding import mean_vectors
from .blocks.embeddings.left_padding import LeftPadding
from .blocks.mlp import HiddenLayers
from .blocks.serialization import ConfiguredBlock, register_block
from .blocks.shapes import as_ids, as_rows
from .interest_channels import Channels, Features
from .losses import TotalLoss, sampled_softmax_loss
from .options import TwoTowerOptions

SLOPES = (0.0, 1.0, 0.3, 0.1)
"""How much less a position counts than the next one, in the exponent, when training begins."""


@register_block
class PositionWeights(ConfiguredBlock):
    """Softmax over the real positions of a learned number for each, once for every weighting.

    A weighting says how long ago it looks. The first begins as a plain mean, the second with the
    newest positions, the third and fourth between them; then they begin anew.

    >>> real = tf.constant([[False, True, True]])
    >>> means = PositionWeights(1, 3)(tf.constant([[[9.0], [2.0], [4.0]]]), real)
    >>> means.numpy().tolist()
    [[3.0]]

    Args:
        weightings: How many.
        positions: How many a padded history has.
    """

    def __init__(self, weightings: int, positions: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.weightings = check_positive("weightings", weightings)
        self.positions = check_positive("positions", positions)

    def build(self, input_shape: Any) -> None:
        """Create the numbers: [weightings, positions]."""
        position = tf.range(self.positions, dtype=tf.float32)[tf.newaxis] - float(
            self.positions - 1
        )
        slopes = [[SLOPES[number % len(SLOPES)]] for number in range(self.weightings)]
        start = (tf.constant(slopes) * position).numpy()
        self.numbers = self.add_weight(
            "numbers", start.shape, initializer=tf.keras.initializers.Constant(start)
        )
        super().build(input_shape)

    def call(self, vectors: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        """Return means over real positions: [users, positions, dim] -> [users, weightings x dim].

        Those of an empty history are zeros.
        """
        mask = real[:, tf.newaxis]  # [users, 1, positions]
        numbers = tf.cast(self.numbers, tf.float32)[tf.newaxis]
        shape = [tf.shape(real)[0], self.weightings, self.positions]
        shares = masked_softmax(tf.broadcast_to(numbers, shape), mask)
        shares *= tf.cast(mask, shares.dtype)  # an empty history has equal weights, all of padding
        means = tf.matmul(tf.cast(shares, vectors.dtype), vectors)  # [users, weightings, dim]
        return tf.reshape(means, [-1, self.weightings * int(vectors.shape[-1])])


@register_block
class TwoTowerBlock(ColumnsBlock[TwoTowerOptions]):
    """The two towers (https://doi.org/10.1145/3298689.3346996) and the product of their vectors.

    user = unit length(layers of [weighted means of the history, user features]
                       + sum over means of share x P mean)
    item = unit length(layers of [item features] + P item features)

    The history's items and the target share their tables and P, so that from the first step on
    users are near to what is like the items they took. An item's vector is made of the item alone,
    so that an index can hold the vectors of all items.
    """

    options_type = TwoTowerOptions
    channels: Channels

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        parsed, channels, policy = self.options, self.channels, self._dtype_policy
        histories = dict.fromkeys(channels.positive, channels.history_length)
        self.padding = LeftPadding(histories, name="left_padding")
        looked_up = [n for n in channels.categorical if n not in channels.negative]
        self.embedding = self.make_embedding(looked_up, parsed.embedding_dim, "embedding")
        width_of = self.embedding.width_of
        self.shared_dim = sum(width_of[name] for name in channels.target_item)
        self.item_dim = self.shared_dim + sum(width_of[name] for name in channels.target_lists)
        self.item_dim += channels.numbers_dim(channels.target_numerical)
        history_dim = self.shared_dim * parsed.history_weightings
        self.user_dim = history_dim + sum(width_of[name] for name in channels.user)
        self.user_dim += channels.numbers_dim(channels.user_numerical)
        self.weightings = PositionWeights(
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
        return replace(Channels.read(schema), time_intervals=None, negative=())

    @property
    def output_dim(self) -> int:
        """One number: the logit."""
        return 1

    def build(self, input_shape: Any = None) -> None:
        """Create all weights; schema and options give every size."""
        if self.built:
            return
        with tf.name_scope(self.embedding.name):
            self.embedding.build(None)
        length = self.channels.history_length
        with tf.name_scope("weightings"):
            self.weightings.build(tf.TensorShape([None, length, None]))
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

    def forward(self, features: Features, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the vectors of users, [users, dim], and items, [users, candidates, dim]."""
        ids = {**features.user, **features.target_item, **features.positive, **features.lists}
        vectors = self.embedding(ids, with_gradient=training)
        return self._users(features, vectors), self._items(features, vectors)

    def _users(self, features: Features, vectors: Mapping[str, Any]) -> tf.Tensor:
        numbers = features.user_numbers
        of_candidates = any(ids.shape.rank == 2 for ids in features.user.values())
        if of_candidates or (numbers is not None and (numbers.shape[1] or 1) > 1):
            raise OptionError(
                "Features and numbers of users, and contexts, should be [users]: a user "
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
        parts += [mean_vectors(vectors[name], ids) for name, ids in features.lists.items()]
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
        """Return the cosine of each sample's vectors over the temperature, [samples, 1]."""
        return self.products(*self.forward(self.features(inputs), training))


class TwoTowerOutputs(NamedTuple):
    """Outputs of a forward pass."""

    logits: tf.Tensor
    """The cosine over the temperature: [samples, 1], float32; orders a user's items."""
    users: tf.Tensor
    """Vectors of unit length, [users, dim], float32."""
    items: tf.Tensor
    """Vectors of unit length, [users, candidates, dim], float32."""


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class TwoTowerModel(BlockModel):
    """Two towers, trained by a softmax over the items of the batch.

    Every row's item is a candidate of every clicked row's user, those of rows without a click
    among them. How often each item is a row's item has to be said before training
    (:meth:`take_target_counts`; ``merlin-sim train`` counts); until then all are taken to be
    equally popular. What was counted is saved with the model, and loaded with it. On several ranks
    each has the items of its own part of the batch, and its mean over clicked rows counts by the
    number of all its rows.

    Merlin's own (``mm.TwoTowerModelV2`` with ``mm.ContrastiveOutput``) takes each row for a
    positive one and computes its loss within Keras's ``train_step``: it has no weights of rows, so
    that no row could be without a click, or a filler of an uneven last batch, and its step cannot
    be resumed to the bit. Its parts are used here where they fit: tables, blocks, the model.
    """

    body_type = TwoTowerBlock
    body: TwoTowerBlock
    has_vectors: ClassVar[bool] = True

    def __init__(self, schema: Any, options: Any, **kwargs: Any) -> None:
        """Make the model; all items are equally popular until they are counted."""
        super().__init__(schema, options, **kwargs)
        self._item = self.channels.target_item[0]
        rows = self.channels.schema[self._item].int_domain.max + 1
        self._log_chances = tf.Variable(
            np.zeros(rows, np.float32), trainable=False, name="log_chances"
        )

    @staticmethod
    def make_logit() -> tf.keras.layers.Layer:
        """Make a layer that gives the block's output as it is: it is the logit."""
        return tf.keras.layers.Activation("linear", dtype="float32", name="logit")

    @property
    def counted_variables(self) -> tuple[tf.Variable, ...]:
        """What is counted in the training data: kept in checkpoints though it is not trained."""
        return (self._log_chances,)

    def take_target_counts(self, counts: npt.NDArray[np.int64]) -> None:
        """Hear how often each item is a row's item in the training data.

        Args:
            counts: [cardinality + 1] By item id; an item that is never one counts as once.
        """
        rows = int(self._log_chances.shape[0])
        if counts.shape != (rows,) or (counts < 0).any():
            raise OptionError(
                f"`counts` should be {rows} numbers of at least 0, one for each id of "
                f"{self._item!r}. Received: {counts.shape}, at least {counts.min(initial=0)}."
            )
        shares = np.maximum(counts, 1) / max(1, counts.sum())
        self._log_chances.assign(np.log(shares).astype(np.float32))

    def forward(self, columns: dict[str, Any], training: bool = False) -> TwoTowerOutputs:
        """Return a batch's logits, and the vectors of users and items that they are made of.

        The batch is plain rows, or one user's row and its candidates; ``training`` prepares the
        tables for a gradient.
        """
        users, items = self.body.forward(self.body.features(columns), training)
        logits = self.body.products(users, items)
        return TwoTowerOutputs(logits, users, items)

    def compute_step(
        self,
        columns: dict[str, Any],
        labels: tf.Tensor,
        sample_weight: tf.Tensor | None = None,
        training: bool = True,
    ) -> tuple[TotalLoss, tf.Tensor]:
        """Return the loss of a batch of plain rows, of clicked ones alone, and its logits."""
        outputs = self.forward(columns, training)
        weights = tf.reshape(tf.cast(labels, tf.float32), [-1])
        if sample_weight is not None:
            weights *= tf.reshape(tf.cast(sample_weight, tf.float32), [-1])
        items = tf.reshape(outputs.items, [-1, self.options.tower_dim])
        logits = tf.matmul(outputs.users, items, transpose_b=True) / self.options.temperature
        ids = tf.reshape(as_ids(columns[self._item]), [-1])
        loss = sampled_softmax_loss(logits, ids, tf.gather(self._log_chances, ids), weights)
        return self.regularized(TotalLoss(loss)), outputs.logits
