"""How often a candidate, and what is like it, stands in the history that it sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from .checks import check_dims, check_positive
from .serialization import ConfiguredBlock, register_block
from .shapes import as_ids, id_type, sizes

WINDOWS = (10, 30, 100)
"""Newest positions in which occurrences are counted, beside all of them."""


@register_block
class HistoryCounts(ConfiguredBlock):
    """Count a candidate's features in its user's history.

    For each feature, over the newest w positions that the candidate sees, for each window w,

        log(1 + count_w) / log(1 + w)    and    count_w / positions_w

    and of its newest occurrence, ``age`` positions ago, 1 - log(1 + age) / log(1 + length), 0
    without one. Beside all features log(1 + positions) / log(1 + length). All are from 0 to 1.

    An attention's softmax says what the positions found are like, and not how many they are: that
    is what these say. They compare ids, so that they need no training and cost little.

    >>> counts = HistoryCounts(length=4, windows=(2,))
    >>> history = {"item": tf.constant([[0, 7, 5, 7]])}
    >>> item = counts({"item": tf.constant([[7, 9]])}, history, history["item"] > 0)
    >>> [[round(float(x), 2) for x in row] for row in item[0]]
    [[0.63, 0.68, 0.5, 0.67, 1.0, 0.86], [0.0, 0.0, 0.0, 0.0, 0.0, 0.86]]

    Args:
        length: The longest history that a candidate sees.
        windows: Newest positions that are counted; those as long as a history are left out, and
            all positions are counted in any case.
    """

    def __init__(self, length: int, windows: tuple[int, ...] = WINDOWS, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.length = check_positive("length", length)
        self.windows = check_dims("windows", windows)
        self._all_windows = [*(w for w in sorted(set(self.windows)) if w < length), length]

    def counts_dim(self, features: int) -> int:
        """Return how many numbers there are for so many features of an item."""
        return features * (2 * len(self._all_windows) + 1) + 1

    def call(
        self,
        target: Mapping[str, tf.Tensor],
        history: Mapping[str, tf.Tensor],
        real: tf.Tensor,
        ends: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Return the counts: [users, candidates, :meth:`counts_dim`].

        Args:
            target: The candidates' features, each [users, candidates].
            history: The same of each position, by the same names, each [users, positions].
            real: Which positions are not padding: [users, positions], bool.
            ends: Where what a candidate sees ends, [users, candidates]; None where all see the
                whole.
        """
        users, candidates = sizes(next(iter(target.values())))
        length = sizes(real)[1]
        whole = tf.cast(length, id_type() if ends is None else ends.dtype)
        ends = tf.fill([users, candidates], whole) if ends is None else ends
        # The windows' first positions and their common end, as indices of a running count.
        first = [ends - window for window in self._all_windows]
        bounds = tf.clip_by_value(tf.stack([*first, ends], axis=-1), 0, whole)
        running = tf.repeat(_running(real)[:, tf.newaxis], candidates, axis=1)
        positions = self._in_windows(running, bounds)  # [users, candidates, windows]
        lengths = tf.constant(self._all_windows, tf.float32)
        numbers = []
        for name, ids in target.items():
            known = tf.where(real, history[name], -1)  # padding equals nothing
            same = (
                known[:, tf.newaxis, :] == ids[:, :, tf.newaxis]
            )  # [users, candidates, positions]
            count = self._in_windows(_running(same), bounds)
            numbers.append(tf.math.log1p(count) / tf.math.log1p(lengths))
            numbers.append(tf.math.divide_no_nan(count, positions))
            numbers.append(self._recency(same, ends))
        numbers.append(_scaled(positions[:, :, -1:], self.length))
        return tf.cast(tf.concat(numbers, axis=-1), self.compute_dtype)

    def _in_windows(self, running: tf.Tensor, bounds: tf.Tensor) -> tf.Tensor:
        """Return what each window has, of a running count: [users, candidates, windows]."""
        found = tf.gather(running, bounds, axis=2, batch_dims=2)
        return found[:, :, -1:] - found[:, :, :-1]

    def _recency(self, same: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Return how recent the newest occurrence is: [users, candidates, 1]."""
        positions = tf.range(1, sizes(same)[2] + 1, dtype=ends.dtype)
        before = tf.where(same & (positions <= ends[:, :, tf.newaxis]), positions, 0)
        newest = tf.reduce_max(before, axis=-1)
        age = ends - newest
        is_seen = (newest > 0) & (age < self.length)
        age = tf.where(is_seen, tf.cast(age, tf.float32), float(self.length))
        return 1.0 - _scaled(age, self.length)[:, :, tf.newaxis]


def _running(marks: tf.Tensor) -> tf.Tensor:
    """Count marks before each index, and all: [..., length] -> [..., length + 1], float32."""
    count = tf.cumsum(tf.cast(marks, tf.float32), axis=-1)
    return tf.concat([tf.zeros_like(count[..., :1]), count], axis=-1)


def _scaled(number: tf.Tensor, most: int) -> tf.Tensor:
    return tf.math.log1p(number) / tf.math.log1p(float(most))


BINS = 21
"""How many ranges of similarity: twenty from -1 to 1, and that of the very same direction."""

SAME = 1.0 - 2e-3
"""The least cosine that counts as 1: a GPU rounds products to TF32, which has ten bits."""


@register_block
class HistorySimilarity(ConfiguredBlock):
    """Count a candidate's history by similarity (SimTier, https://arxiv.org/abs/2407.19467).

        feature_b = w_b log(1 + how many positions have a cosine with the candidate in bin b)

    over what a candidate may see, for twenty bins of equal width from -1 to 1, and one for cosines
    above 0.998, as those of the item itself. The counts have no gradient, each bin's weight has.

    >>> similarity = HistorySimilarity()
    >>> history = tf.constant([[[1.0, 0.0], [3.0, 0.0], [0.0, 1.0]]])
    >>> found = similarity(tf.constant([[[2.0, 0.0]]]), history, tf.ones([1, 1, 3], tf.bool))
    >>> {index: round(float(x), 2) for index, x in enumerate(found[0, 0]) if x > 0}
    {10: 0.69, 20: 1.1}
    """

    def __init__(self, **kwargs: Any) -> None:
        """Have vectors come as they are: what is near a bin's bound stays on its side."""
        super().__init__(**{"autocast": False, **kwargs})

    def build(self, input_shape: Any) -> None:
        """Create the weights of the bins."""
        self.bin_weights = self.add_weight(
            "bin_weights", [BINS], initializer="ones", experimental_autocast=False
        )
        super().build(input_shape)

    def call(self, candidates: tf.Tensor, history: tf.Tensor, history_mask: tf.Tensor) -> tf.Tensor:
        """Return each bin's feature: [users, candidates, BINS]; shapes as of :mod:`~.attention`."""
        users, count, _ = sizes(candidates)
        vectors = (tf.stop_gradient(tf.cast(v, tf.float32)) for v in (candidates, history))
        target, positions = (tf.math.l2_normalize(v, axis=-1) for v in vectors)
        cosines = tf.matmul(target, positions, transpose_b=True)
        cosines = tf.where(cosines > SAME, 1.0, cosines)
        bins = as_ids(tf.floor((cosines + 1.0) * ((BINS - 1) / 2)))
        bins = tf.where(history_mask, tf.clip_by_value(bins, 0, BINS - 1), BINS)
        counts = tf.raw_ops.DenseBincount(  # what is not below `size` is not counted
            input=tf.reshape(bins, [users * count, sizes(history)[1]]),
            size=BINS,
            weights=tf.constant([], tf.float32),
        )
        features = tf.reshape(tf.math.log1p(counts), [users, count, BINS]) * self.bin_weights
        return tf.cast(features, self.compute_dtype)
