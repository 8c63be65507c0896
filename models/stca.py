"""Stacked Target-to-History Cross Attention (https://arxiv.org/abs/2511.06077)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import tensorflow as tf
from merlin.schema import Schema

from ..foundation.in_xla import in_xla
from .blocks.attention import attention_weights
from .blocks.checks import check_positive
from .blocks.embeddings.feature_embedding import TimeIntervalEmbedding
from .blocks.serialization import ConfiguredBlock, register_block
from .blocks.shapes import Size, id_type, is_one, sharing_of, sizes
from .din import WholeHistoryBlock
from .interest_block import InterestModel
from .interest_channels import Channels, Features
from .options import STCAOptions

NUMBERS_PER_PART = 2**27
"""How many numbers a part of a batch's users has in between, about, at most: 512 MiB of them."""

EPSILON = 1e-6
"""Added to the variance where vectors are normed."""

ROWS = "_rows"
"""After a table's name: the rows of it that each position has."""

Tensors = Mapping[str, tf.Tensor]


@register_block
class StackedCrossAttention(ConfiguredBlock):
    """Layers of cross attention from target to history (STCA, https://arxiv.org/abs/2511.06077).

        X_i = LN(SwiGLU_i(X)),          o_i = MHA(q_i, X_i)
        q_1 = LN(SwiGLU(target)),       q_(i+1) = LN(SwiGLU([o_1 | ... | o_i | target] W))
        result = [o_1 | ... | o_M],     SwiGLU(x) = (swish(x G) * (x U)) D

    No position looks at another: cost grows as the history does. A head's result is
    softmax((q Q) (X_i K)' / sqrt(head_dim)) (X_i V). For many candidates keys X_i K and values
    X_i V are made, once for their user. For few ((q Q) K') X_i' and ((softmax) X_i) V cost less,
    and make neither. Shapes choose, and both give the same but for rounding.

    The time since a position, and how many positions ago it is, add to its score what a table has
    for their order of magnitude. An empty history gives zeros.

    A batch that needs much memory is computed in parts of its users, each again in the backward
    pass: what is held for all users at once is their histories' vectors and no more.

    >>> attention = StackedCrossAttention(layers=2, heads=2, head_dim=3)
    >>> mask = tf.constant([[[False, True, True]]])
    >>> attention(tf.ones([1, 1, 4]), tf.ones([1, 3, 4]), mask).shape
    TensorShape([1, 1, 12])

    Args:
        layers: How many, M.
        heads: How many a layer has.
        head_dim: Length of the vectors that a head compares, and of those that it gives.
        swiglu_dim: Hidden size of each SwiGLU; None for twice the vectors' length.
        time_buckets: Rows of the table of times; None without times.
        position_buckets: Rows of the table of positions; None without.
    """

    def __init__(
        self,
        layers: int = 2,
        heads: int = 4,
        head_dim: int = 16,
        swiglu_dim: int | None = None,
        time_buckets: int | None = None,
        position_buckets: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.layers = check_positive("layers", layers)
        self.heads = check_positive("heads", heads)
        self.head_dim = check_positive("head_dim", head_dim)
        self.swiglu_dim = swiglu_dim
        self.time_buckets = time_buckets
        self.position_buckets = position_buckets
        self.of_times = self._make_table("of_times", time_buckets)
        self.of_places = self._make_table("of_places", position_buckets)

    def _make_table(self, name: str, buckets: int | None) -> TimeIntervalEmbedding | None:
        if buckets is None:
            return None
        return TimeIntervalEmbedding(self.layers * self.heads, buckets, dtype="float32", name=name)

    @property
    def layer_dim(self) -> int:
        """Length of what a layer gives."""
        return self.heads * self.head_dim

    @property
    def attended_dim(self) -> int:
        """Length of what all layers give."""
        return self.layers * self.layer_dim

    def build(self, input_shape: Any) -> None:
        """Create the weights for candidates of [users, candidates, dim]."""
        dim = int(input_shape[-1])
        hidden = self.swiglu_dim or 2 * dim
        self.kernels: dict[str, Any] = {}
        for i in range(self.layers):
            if i:
                self._add(f"fuse_{i}", [i * self.layer_dim + dim, dim])
            for part in ("query", "history"):
                self._add(f"{part}_{i}_gate", [dim, hidden])
                self._add(f"{part}_{i}_up", [dim, hidden])
                self._add(f"{part}_{i}_down", [hidden, dim])
                self._add(f"{part}_{i}_scale", [dim], initializer="ones")
                self._add(f"{part}_{i}_offset", [dim], initializer="zeros")
            for kernel in ("to_query", "to_key", "to_value"):
                self._add(f"{kernel}_{i}", [dim, self.layer_dim])
        for table in (self.of_times, self.of_places):
            if table is not None:
                table.build(None)
        super().build(input_shape)

    def _add(self, name: str, shape: list[int], **kwargs: Any) -> None:
        self.kernels[name] = self.add_weight(name, shape, experimental_autocast=False, **kwargs)

    def call(
        self,
        candidates: tf.Tensor,
        history: tf.Tensor,
        history_mask: tf.Tensor,
        times: tf.Tensor | None = None,
        positions_ago: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Return what all layers give: [users, candidates, :attr:`attended_dim`].

        Args:
            candidates: [users, candidates, dim].
            history: [users, history, dim].
            history_mask: [users, candidates, history], bool, or one row for all candidates.
            times: How long ago each position is, [users, windows, history], a window for as many
                candidates that follow each other; read where there is a table of times.
            positions_ago: How many positions ago, likewise.
        """
        weights = dict(self.kernels)
        batch = {"candidates": candidates, "history": history, "mask": history_mask}
        for table, values in ((self.of_times, times), (self.of_places, positions_ago)):
            if table is not None:
                weights[table.name] = table.table
                batch[table.name + ROWS] = table.bucket(values)
        return in_parts_of_users(
            self._attend,
            {name: tf.convert_to_tensor(variable) for name, variable in weights.items()},
            batch,
            self._users_at_once(candidates, history),
        )

    def _users_at_once(self, candidates: tf.Tensor, history: tf.Tensor) -> Size:
        """Return how many users a part of a batch has at most."""
        count, dim = sizes(candidates)[1:]
        of_layer = 3 * (self.swiglu_dim or 2 * dim) + 4 * dim + 3 * count * self.heads
        # Divided by one after the other: where sizes are tensors, the product may exceed int32.
        most = NUMBERS_PER_PART // (self.layers * of_layer) // sizes(history)[1]
        return _at_least_one(most)

    def _attend(self, weights: Tensors, batch: Tensors) -> tf.Tensor:
        """Return what all layers give of a batch, or of a part of one."""
        target = tf.cast(batch["candidates"], tf.float32)
        mask = batch["mask"][:, tf.newaxis]  # [users, 1, candidates or 1, history]
        attended: list[tf.Tensor] = []
        for i in range(self.layers):
            fused = target
            if i:
                fused = tf.matmul(tf.concat([*attended, target], axis=-1), weights[f"fuse_{i}"])
            query = self._normed_swiglu(fused, weights, f"query_{i}")
            positions = self._normed_swiglu(batch["history"], weights, f"history_{i}")
            query = self._by_head(tf.matmul(query, weights[f"to_query_{i}"])) / self.head_dim**0.5
            biases = self._biases(i, weights, batch)

            def weighed(scores: tf.Tensor, biases: list[tf.Tensor] = biases) -> tf.Tensor:
                return attention_weights(_with_biases(scores, biases), mask)

            kernels = weights[f"to_key_{i}"], weights[f"to_value_{i}"]
            attended.append(self._attend_once(query, positions, *kernels, weighed))
        return tf.cast(tf.concat(attended, axis=-1), self.compute_dtype)

    def _normed_swiglu(self, vectors: tf.Tensor, weights: Tensors, name: str) -> tf.Tensor:
        """Return LN(SwiGLU(vectors)), float32; the products have the policy's precision."""
        names = (f"{name}_gate", f"{name}_up", f"{name}_down")
        gate, up, down = (tf.cast(weights[kernel], self.compute_dtype) for kernel in names)
        vectors = tf.cast(vectors, self.compute_dtype)
        hidden = tf.nn.silu(tf.matmul(vectors, gate)) * tf.matmul(vectors, up)
        result = tf.cast(tf.matmul(hidden, down), tf.float32)
        centred = result - tf.reduce_mean(result, axis=-1, keepdims=True)
        deviation = tf.sqrt(tf.reduce_mean(centred**2, axis=-1, keepdims=True) + EPSILON)
        return centred / deviation * weights[f"{name}_scale"] + weights[f"{name}_offset"]

    def _biases(self, layer: int, weights: Tensors, batch: Tensors) -> list[tf.Tensor]:
        """Return what time and position add to scores: [users, heads, windows, history]."""
        heads = slice(layer * self.heads, (layer + 1) * self.heads)
        names = [table.name for table in (self.of_times, self.of_places) if table is not None]
        found = [tf.gather(weights[name][:, heads], batch[name + ROWS]) for name in names]
        return [tf.transpose(bias, [0, 3, 1, 2]) for bias in found]

    def _attend_once(
        self,
        query: tf.Tensor,
        positions: tf.Tensor,
        to_key: tf.Tensor,
        to_value: tf.Tensor,
        weighed: Callable[[tf.Tensor], tf.Tensor],
    ) -> tf.Tensor:
        """Return one layer's attention: [users, candidates, layer_dim].

        Args:
            query: [users, heads, candidates, head_dim].
            positions: [users, history, dim].
            to_key: Kernel of the keys, [dim, layer_dim].
            to_value: That of the values, likewise.
            weighed: From scores, [users, heads, candidates, history], to weights.
        """
        users, heads, count, _ = sizes(query)
        length, dim = sizes(positions)[1:]
        rows = [users, heads * count]

        def with_keys() -> tf.Tensor:
            keys, values = (self._by_head(tf.matmul(positions, k)) for k in (to_key, to_value))
            return tf.matmul(weighed(tf.matmul(query, keys, transpose_b=True)), values)

        def without_keys() -> tf.Tensor:
            of_key, of_value = (
                tf.reshape(kernel, [dim, heads, self.head_dim]) for kernel in (to_key, to_value)
            )
            moved = tf.reshape(tf.einsum("uhck,dhk->uhcd", query, of_key), [*rows, dim])
            scores = tf.matmul(moved, positions, transpose_b=True)
            weights = weighed(tf.reshape(scores, [users, heads, count, length]))
            sums = tf.matmul(tf.reshape(weights, [*rows, length]), positions)
            sums = tf.reshape(sums, [users, heads, count, dim])
            return tf.einsum("uhcd,dhk->uhck", sums, of_value)

        makes_keys = self.makes_keys(count, dim)
        if isinstance(makes_keys, bool):
            found = with_keys() if makes_keys else without_keys()
        else:
            found = tf.cond(makes_keys, with_keys, without_keys)
        return tf.reshape(tf.transpose(found, [0, 2, 1, 3]), [users, count, self.layer_dim])

    def makes_keys(self, candidates: Size, dim: int) -> Any:
        """Return whether, for so many candidates, to make keys and values takes fewer products."""
        return candidates * (self.heads * dim - self.layer_dim) > dim * self.layer_dim

    def _by_head(self, vectors: tf.Tensor) -> tf.Tensor:
        """[users, rows, heads x head_dim] -> [users, heads, rows, head_dim]."""
        users, rows, _ = sizes(vectors)
        parts = tf.reshape(vectors, [users, rows, self.heads, self.head_dim])
        return tf.transpose(parts, [0, 2, 1, 3])


def _with_biases(scores: tf.Tensor, biases: list[tf.Tensor]) -> tf.Tensor:
    """Add windows' biases, [users, heads, windows, history], to their candidates' scores."""
    users, heads, count, length = sizes(scores)
    for bias in biases:
        windows, sharing = sizes(bias)[2], sharing_of(scores[:, 0], bias[:, 0])
        split = tf.reshape(scores, [users, heads, windows, sharing, length])
        scores = tf.reshape(split + bias[:, :, :, tf.newaxis], [users, heads, count, length])
    return scores


def in_parts_of_users(
    function: Callable[[Tensors, Tensors], tf.Tensor],
    weights: Tensors,
    batch: Tensors,
    users_at_once: Size,
) -> tf.Tensor:
    """Apply a function of a batch to parts of its users, one after the other.

    In the backward pass each part is computed again: of what is in between, one part's is held at
    a time. Parts have equally many users: the last one is filled up with zeros.

    Args:
        function: From weights and a batch, or a part of one, to [users, ...].
        weights: What is the same for all users; it has a gradient.
        batch: Name -> [users, ...]; what is float has a gradient.
        users_at_once: How many users a part has at most.
    """
    users = sizes(batch["candidates"])[0]
    parts = _at_least_one((users + users_at_once - 1) // users_at_once)
    if is_one(parts):
        return function(weights, batch)
    if isinstance(parts, int) or in_xla():  # which has no gradient of the choice below
        return _parted(function, weights, batch, parts)
    return tf.cond(
        parts > 1,
        lambda: _parted(function, weights, batch, parts),
        lambda: function(weights, batch),
    )


def _at_least_one(size: Size) -> Size:
    return max(size, 1) if isinstance(size, int) else tf.maximum(size, 1)


def _parted(
    function: Callable[[Tensors, Tensors], tf.Tensor], weights: Tensors, batch: Tensors, parts: Size
) -> tf.Tensor:
    """Apply a function to so many parts of a batch."""
    users = sizes(batch["candidates"])[0]
    of_part = (users + parts - 1) // parts
    split = {}
    for name, tensor in batch.items():
        fillers = tf.zeros([parts * of_part - users, *sizes(tensor)[1:]], tensor.dtype)
        filled = tf.concat([tensor, fillers], axis=0)
        split[name] = tf.reshape(filled, [parts, of_part, *sizes(tensor)[1:]])
    trained = [*weights, *(name for name, tensor in split.items() if tensor.dtype.is_floating)]

    @tf.custom_gradient
    def compute(*given: tf.Tensor) -> tuple[tf.Tensor, Callable[..., object]]:
        named = dict(zip(trained, given))  # noqa: B905  autograph has no strict
        kernels = {name: named[name] for name in weights}

        def part_of(part: tf.Tensor) -> dict[str, tf.Tensor]:
            return {name: named.get(name, tensor)[part] for name, tensor in split.items()}

        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            def gradients_of(part: tf.Tensor) -> list[tf.Tensor]:
                users = part_of(part)
                asked = [kernels[name] if name in weights else users[name] for name in trained]
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(asked)
                    result = function(kernels, users)
                found = tape.gradient(result, asked, upstream[part], "zero")
                return [tf.convert_to_tensor(of_one) for of_one in found]

            found = _each(gradients_of, parts, [tensor.dtype for tensor in given])
            return [
                tf.reduce_sum(of_parts, axis=0) if name in weights else of_parts
                for name, of_parts in zip(trained, found)  # noqa: B905
            ]

        dtype = batch["candidates"].dtype
        return _each(lambda part: function(kernels, part_of(part)), parts, dtype), gradient

    result = compute(*({**weights, **split}[name] for name in trained))
    return tf.reshape(result, [-1, *sizes(result)[2:]])[:users]


def _each(function: Callable[[tf.Tensor], Any], parts: Size, dtypes: Any) -> Any:
    """Apply a function to the number of each part, one at a time, and stack what it gives."""
    numbers = tf.range(parts)
    return tf.map_fn(function, numbers, fn_output_signature=dtypes, parallel_iterations=1)


@register_block
class STCABlock(WholeHistoryBlock[STCAOptions]):
    """Cross attention of the target to the whole history, in layers."""

    options_type = STCAOptions
    reads_time_intervals = True

    def read_channels(self, schema: Schema) -> Channels:
        """Find the columns of each channel; time intervals only where there is a table of them."""
        channels = super().read_channels(schema)
        return channels if self.options.time_buckets else replace(channels, time_intervals=None)

    def make_attention(self) -> StackedCrossAttention:
        """Make the layers, whose heads share an item vector's length among them."""
        options = self.options
        return StackedCrossAttention(
            options.layers,
            options.heads,
            -(-self.item_dim // options.heads),
            options.swiglu_dim,
            options.time_buckets if self.channels.time_intervals else None,
            options.position_buckets,
            dtype=self._dtype_policy,
            name="attention",
        )

    @property
    def attended_dim(self) -> int:
        """Length of what all layers give."""
        return int(self.attention.attended_dim)

    def attend(
        self,
        features: Features,
        vectors: Mapping[str, Any],
        target: tf.Tensor,
        history: tf.Tensor,
        mask: tf.Tensor,
    ) -> tf.Tensor:
        """Return the interest in each candidate: [users, candidates, attended_dim]."""
        times = features.time_intervals
        if times is not None and times.shape.rank == 2:  # of users, with one window each
            times = times[:, tf.newaxis]
        return self.attention(target, history, mask, times, self._positions_ago(features))

    def _positions_ago(self, features: Features) -> tf.Tensor | None:
        """Count each position from its window's end, 1 the newest; None if not read."""
        if self.options.position_buckets is None:
            return None
        users, length = sizes(features.real)
        ends = features.window_ends
        if ends is None:
            ends = tf.fill([users, 1], tf.cast(length, id_type()))
        return ends[..., tf.newaxis] - tf.range(length, dtype=ends.dtype)


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class STCAModel(InterestModel):
    """STCA as a Merlin model; see :class:`~.interest_block.InterestModel`."""

    body_type = STCABlock
