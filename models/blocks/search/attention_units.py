"""The second stage: what the positions found say about the candidate."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..attention import TargetAttention, attention_weights
from ..checks import check_positive
from ..serialization import part_from, register_block
from ..shapes import by_window, sharing_of, sizes
from .search_and_attention import (
    AttentionUnit,
    LongHistory,
    LongInterest,
    SearchResult,
    Target,
    dot_sums,
    marks_of,
    mean_of,
)


@register_block
class ExactSearchUnit(AttentionUnit):
    """Attend again, by the dot product, to the positions that a search kept.

        attended = sum_t softmax(r_t) h_t,    mean = sum_t h_t / (count + 1)    over the kept t

    Where the search was by the dot product too, its weights are taken: masking the history with
    the choice gives what gathering the kept positions would, without moving them. Both sums, and
    stage one's where it is asked for, are one batched product with the history.

    >>> from merlin_sim.models.blocks.search.search_units import GeneralSearchUnit
    >>> vectors = tf.constant([[[5.0], [1.0], [2.0]]])
    >>> history = LongHistory(vectors, tf.constant([[[False, True, True]]]), {})
    >>> target = Target(tf.constant([[[1.0]]]), {})
    >>> interest = ExactSearchUnit()(target, history, GeneralSearchUnit(top_k=1)(target, history))
    >>> interest.attended.numpy().tolist(), interest.mean.numpy().tolist()
    ([[[2.0]]], [[[1.0]]])
    """

    def attended_dim(self, item_dim: int) -> int:
        """Return ``item_dim``: what is attended to are the items' vectors."""
        return item_dim

    def call(
        self,
        target: Target,
        history: LongHistory,
        found: SearchResult,
        stage_one: bool = False,
    ) -> LongInterest:
        """Attend to what the search found; for ``stage_one`` to the whole history too."""
        marks = marks_of(target, found)
        of = ["kept", "whole"] if stage_one else ["kept"]
        attended, *searched, total = dot_sums(target, history, found, of, [marks])
        return self.interest(attended, mean_of(total, marks), *searched)


DEFAULT_HEADS = 4
"""Heads of the attention over items and times, unless set."""


@register_block
class MultiHeadSearchUnit(AttentionUnit):
    """Multi-head attention to what the search kept (SIM, equations 5 to 7).

        z_t = [h_t, time vector of t]
        weights_i = softmax((W_i z_t) . (V_i target))   over the kept t
        attended = [sum_t weights_1t z_t, ..., sum_t weights_qt z_t]

    (W_i z) . (V_i e) = z . (W_i' V_i e): one vector per head and candidate is multiplied with the
    history, not a matrix with every position.

    Args:
        heads: How many.
        head_dim: Length of the vectors that a head compares.
        time_dim: Length of the time vectors; 0 without.
    """

    def __init__(self, heads: int, head_dim: int, time_dim: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads = check_positive("heads", heads)
        self.head_dim = check_positive("head_dim", head_dim)
        self.time_dim = time_dim
        self.reads_times = time_dim > 0

    def attended_dim(self, item_dim: int) -> int:
        """Return the length of all heads' vectors, items and times."""
        return self.heads * (item_dim + self.time_dim)

    def build(self, input_shape: Any) -> None:
        """Create the kernels for candidates of [users, candidates, dim]."""
        shape = input_shape.vector if isinstance(input_shape, Target) else input_shape
        dim = int(shape[-1])
        width = [self.heads, self.head_dim]
        self.target_kernel = self.add_weight(
            "target_kernel", [dim, *width], experimental_autocast=False
        )
        self.history_kernel = self.add_weight(
            "history_kernel", [dim + self.time_dim, *width], experimental_autocast=False
        )
        super().build(input_shape)

    def scores(self, target: Target, history: LongHistory) -> tf.Tensor:
        """Return each head's scores: [users, candidates, heads, long], float32."""
        query = tf.einsum("umd,dhk->umhk", tf.cast(target.vector, tf.float32), self.target_kernel)
        query = tf.einsum("umhk,zhk->umhz", query, self.history_kernel)
        item_dim = int(history.vectors.shape[-1])
        of_item, of_time = tf.split(query, [item_dim, self.time_dim], axis=-1)
        scores = _products(of_item, by_window(tf.cast(history.vectors, tf.float32)))
        if history.time_vectors is not None:
            scores += _products(of_time, by_window(tf.cast(history.time_vectors, tf.float32)))
        return scores

    def call(
        self,
        target: Target,
        history: LongHistory,
        found: SearchResult,
        stage_one: bool = False,
    ) -> LongInterest:
        """Attend to what the search found; for ``stage_one`` to the whole history too.

        The weights are the unit's own. Stage one's attention is by the dot product, and there the
        search's weights are taken where it has them.
        """
        weights = self.weights_over(target, history, found.selected)
        parts = [_sums(weights, by_window(tf.cast(history.taken, tf.float32)))]
        if history.time_vectors is not None:
            parts.append(_sums(weights, by_window(tf.cast(history.time_vectors, tf.float32))))
        attended = tf.concat(parts, axis=-1)  # [users, candidates, heads, dim + time_dim]
        users, candidates = sizes(attended)[:2]
        width = self.heads * int(attended.shape[-1])
        attended = tf.reshape(attended, [users, candidates, width])
        marks = marks_of(target, found)
        of = ["whole"] if stage_one else []
        *searched, total = dot_sums(target, history, found, of, [marks])
        return self.interest(attended, mean_of(total, marks), *searched)


def _products(query: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    """Multiply each head's vector with its window's: [users, candidates, heads, long]."""
    users, candidates, heads, dim = sizes(query)
    windows, long = sizes(vectors)[1:3]
    rows = sharing_of(query, vectors) * heads
    scores = tf.matmul(tf.reshape(query, [users, windows, rows, dim]), vectors, transpose_b=True)
    return tf.reshape(scores, [users, candidates, heads, long])


def _sums(weights: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    """Sum each window's vectors with each head's weights: [users, candidates, heads, dim]."""
    users, candidates, heads, long = sizes(weights)
    windows, _, dim = sizes(vectors)[1:]
    rows = sharing_of(weights, vectors) * heads
    sums = tf.matmul(tf.reshape(weights, [users, windows, rows, long]), vectors)
    return tf.reshape(sums, [users, candidates, heads, dim])


@register_block
class TargetAttentionUnit(AttentionUnit):
    """Attend with :class:`TargetAttention` to the positions that a search kept.

    Positions are marked, not gathered: the softmax is over those kept. Where the search scored by
    the same attention, as TWIN's does, its scores are taken.

    Args:
        attention: What attends; a search may have the same.
    """

    has_mean = False
    parts = ("attention",)

    def __init__(self, attention: TargetAttention | dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.attention: TargetAttention = part_from(attention)
        self.reads_times = self.attention.time_dim > 0

    def attended_dim(self, item_dim: int) -> int:
        """Return the length of all heads' vectors."""
        return self.attention.attended_dim

    def call(
        self,
        target: Target,
        history: LongHistory,
        found: SearchResult,
        stage_one: bool = False,
    ) -> LongInterest:
        """Attend to what the search found; for ``stage_one`` to the whole history too."""
        scores = found.scores
        if scores is None:
            scores = self.scores(target, history)
        weights = attention_weights(scores, found.selected[:, :, tf.newaxis, :])
        attended = self.attention.attend(weights, history.taken)
        searched = dot_sums(target, history, found, ["whole"], []) if stage_one else []
        return self.interest(attended, None, *searched)

    def scores(self, target: Target, history: LongHistory) -> tf.Tensor:
        """Return the attention's scores: [users, candidates, heads, long], float32."""
        return self.attention.scores(target.vector, history.vectors, history.time_vectors)


@register_block
class CollisionAttentionUnit(AttentionUnit):
    """Sum a history by the strength of a search (SDIM, https://arxiv.org/abs/2205.10249).

        attended = sum_t strength_t h_t

    which is the mean over the hashes of the sum of what collides. It has no softmax, so that it
    grows with what is found. With ``counts`` it says how much that is, too: log(1 + sum_t
    strength_t) beside.

    >>> history = LongHistory(tf.constant([[[3.0], [1.0]]]), tf.ones([1, 1, 2], tf.bool), {})
    >>> strength = tf.constant([[[0.5, 1.0]]])
    >>> found = SearchResult(strength > 0.0, strength=strength)
    >>> unit = CollisionAttentionUnit()
    >>> unit(Target(tf.ones([1, 1, 1]), {}), history, found).attended.numpy().tolist()
    [[[2.5]]]

    Args:
        counts: Whether to give the strengths' sum.
    """

    has_mean = False

    def __init__(self, counts: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.counts = counts

    def attended_dim(self, item_dim: int) -> int:
        """Return ``item_dim``, and one for the count."""
        return item_dim + int(self.counts)

    def call(
        self,
        target: Target,
        history: LongHistory,
        found: SearchResult,
        stage_one: bool = False,
    ) -> LongInterest:
        """Sum what the search found; for ``stage_one`` attend to the whole history too."""
        selected, strength = found.selected, found.strength
        strength = tf.cast(selected, tf.float32) if strength is None else strength
        strength = tf.stop_gradient(strength)
        of = ["whole"] if stage_one else []
        *searched, attended = dot_sums(target, history, found, of, [strength])
        if self.counts:
            count = tf.math.log1p(tf.reduce_sum(strength, axis=-1, keepdims=True))
            attended = tf.concat([attended, count], axis=-1)
        return self.interest(attended, None, *searched)
