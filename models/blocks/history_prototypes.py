"""A summary of a history that knows no target, to which interactions can be added."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .attention import FIRST_BIAS, TargetAttention
from .checks import check_positive
from .serialization import ConfiguredBlock, register_block
from .shapes import as_rows, sharing_of, sizes

FIRST_DEVIATION = 2.0
"""Of the prototypes' numbers at the start: of 32, a position then belongs to about four."""


@register_block
class HistoryPrototypes(ConfiguredBlock):
    """Distribute a history over prototypes, then attend to what each of them has.

        s_k(h) = softmax over the prototypes k of p_k . h / |h|
        summary_k = [sum_t s_k(h_t) h_t, n_k],    n_k = sum_t s_k(h_t)

    The softmax is over prototypes, not over positions: a history's summary is the sum of those of
    its parts, in any order, and has one size for any length. Of a target e, which has shares in the
    prototypes too, each head of :class:`~.attention.TargetAttention` over the means
    m_k = sum_t s_k(h_t) h_t / n_k gives

        [sum_k softmax(score_k + log c_k) m_k V,  log(1 + sum_k c_k sigmoid(score_k + b))]

    with c_k = s_k(e) n_k, how many positions share the target's prototypes. An empty history gives
    zeros.

    >>> prototypes = HistoryPrototypes(prototypes=2, heads=2, head_dim=3)
    >>> prototypes.build(tf.TensorShape([None, None, 4]))
    >>> history, mask = tf.random.normal([1, 5, 4]), tf.ones([1, 1, 5], tf.bool)
    >>> summary = prototypes.summarize(history, mask)
    >>> parts = [prototypes.summarize(history[:, p], mask[..., p]) for p in (slice(2), slice(2, 5))]
    >>> summary.shape, bool(tf.reduce_all(tf.abs(summary - parts[0] - parts[1]) < 1e-5))
    (TensorShape([1, 1, 2, 5]), True)
    >>> prototypes(tf.ones([1, 6, 4]), summary).shape
    TensorShape([1, 6, 8])

    Args:
        prototypes: How many.
        heads: Heads of the attention.
        head_dim: Length of the vectors that a head compares, and of those that it gives.
    """

    def __init__(self, prototypes: int, heads: int = 4, head_dim: int = 16, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.prototypes = check_positive("prototypes", prototypes)
        self.heads = check_positive("heads", heads)
        self.head_dim = check_positive("head_dim", head_dim)
        policy = self._dtype_policy
        self.attention = TargetAttention(heads, head_dim, dtype=policy, name="attention")

    @property
    def attended_dim(self) -> int:
        """Length of what a call gives: all heads' vectors and how much each found."""
        return self.heads * (self.head_dim + 1)

    def build(self, input_shape: Any) -> None:
        """Create prototypes, bias and attention for candidates of [users, candidates, dim]."""
        normal = tf.keras.initializers.RandomNormal(stddev=FIRST_DEVIATION)
        first = tf.keras.initializers.Constant(FIRST_BIAS)
        shape = [self.prototypes, int(input_shape[-1])]
        kept = {"experimental_autocast": False}
        self.vectors = self.add_weight("vectors", shape, initializer=normal, **kept)
        self.bias = self.add_weight("bias", [self.heads], initializer=first, **kept)
        self.attention.build(input_shape)
        super().build(input_shape)

    def summarize(self, history: tf.Tensor, history_mask: tf.Tensor) -> tf.Tensor:
        """Return the summaries of windows: [users, windows, prototypes, dim + 1], float32.

        Args:
            history: [users, history, dim].
            history_mask: [users, windows, history], bool.
        """
        history = tf.cast(history, tf.float32)
        shares = tf.transpose(self._shares(history), [0, 2, 1])
        seen = tf.cast(history_mask, tf.float32)[:, :, tf.newaxis]
        shares = shares[:, tf.newaxis] * seen  # [users, windows, prototypes, history]
        users, windows, prototypes, length = sizes(shares)
        counted = tf.concat([history, tf.ones_like(history[..., :1])], axis=-1)
        sums = tf.matmul(tf.reshape(shares, [users, windows * prototypes, length]), counted)
        return tf.reshape(sums, [users, windows, prototypes, sizes(counted)[2]])

    def _shares(self, vectors: tf.Tensor) -> tf.Tensor:
        """Distribute vectors over the prototypes: [users, rows, dim] -> [.., prototypes]."""
        directions = tf.math.l2_normalize(tf.cast(vectors, tf.float32), axis=-1)
        return tf.nn.softmax(tf.matmul(directions, self.vectors, transpose_b=True))

    def call(self, candidates: tf.Tensor, summary: tf.Tensor) -> tf.Tensor:
        """Return what the heads find: [users, candidates, :attr:`attended_dim`].

        Args:
            candidates: [users, candidates, dim].
            summary: [users, windows, prototypes, dim + 1], a window for as many candidates that
                follow each other.
        """
        users, count, dim = sizes(candidates)
        windows, sharing = sizes(summary)[1], sharing_of(candidates, summary)
        target = tf.reshape(candidates, [users * windows, sharing, dim])
        of_windows = tf.cast(as_rows(summary), tf.float32)
        positions = of_windows[..., -1]  # [users x windows, prototypes]
        means = tf.math.divide_no_nan(of_windows[..., :-1], positions[..., tf.newaxis])
        positions = positions[:, tf.newaxis] * self._shares(target)
        positions = positions[:, :, tf.newaxis]
        scores = self.attention.scores(target, means)  # [users x windows, sharing, heads, ..]
        weights = tf.nn.softmax(scores + tf.math.log(tf.maximum(positions, 1e-30)))
        attended = self.attention.attend(weights, means)
        strengths = tf.sigmoid(scores + self.bias[:, tf.newaxis])
        found = tf.math.log1p(tf.reduce_sum(positions * strengths, axis=-1))
        result = tf.concat([attended, tf.cast(found, attended.dtype)], axis=-1)
        return tf.reshape(result, [users, count, self.attended_dim])
