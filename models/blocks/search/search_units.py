"""The first stage: which positions of a long history a candidate is about."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..attention import TargetAttention, attention_weights, dot_scores
from ..checks import check_positive, require
from ..serialization import ConfiguredBlock, part_from, register_block
from ..shapes import sizes
from .search_and_attention import (
    DotWeights,
    LongHistory,
    SearchResult,
    SearchUnit,
    Target,
    register_search_unit,
)
from .top_k_mask import top_k_marks, top_k_mask


@register_block
class RandomProjection(ConfiguredBlock):
    """Signs of a vector's products with random vectors that never change.

        code(x) = (sign(x . r_1), ..., sign(x . r_bits)),    sign(0) = 1

    Two vectors agree in a sign with the probability 1 - angle / pi, whatever their lengths. The
    random vectors are drawn once, when the model is made, and are weights that are not trained:
    checkpoints, exports and copies to other ranks hold them, as they hold the trained ones.

    >>> signs = RandomProjection(bits=8)(tf.constant([[1.0, 2.0], [2.0, 4.0], [-1.0, -2.0]]))
    >>> bool(tf.reduce_all(signs[0] == signs[1])), bool(tf.reduce_all(signs[0] == -signs[2]))
    (True, True)

    Args:
        bits: How many signs a code has.
    """

    def __init__(self, bits: int, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.bits = check_positive("bits", bits)

    def build(self, input_shape: Any) -> None:
        """Draw the random vectors for inputs of [..., dim]."""
        self.projection = self.add_weight(
            "projection",
            [int(input_shape[-1]), self.bits],
            initializer=tf.keras.initializers.RandomNormal(stddev=1.0),
            trainable=False,
            experimental_autocast=False,
        )
        super().build(input_shape)

    def call(self, vectors: tf.Tensor) -> tf.Tensor:
        """Return the codes, 1 and -1: [..., dim] -> [..., bits], float32, without a gradient."""
        vectors = tf.stop_gradient(tf.cast(vectors, tf.float32))
        one = tf.ones([], tf.float32)
        return tf.where(tf.matmul(vectors, self.projection) >= 0.0, one, -one)


@register_search_unit("soft")
@register_block
class GeneralSearchUnit(SearchUnit):
    """Soft search (SIM, https://arxiv.org/abs/2006.05639, section 3.1).

        r_t = target . h_t,      weights = softmax(r) over the positions it may see
        selected = the top_k positions by weight, kept where the weight is above 0

    Among equal weights the older position is taken, as by ``tf.math.top_k``. Positions are marked
    where they stand, not gathered: the exact search unit masks the history instead. A search has no
    gradient: what is trained is the attention to what it found, and stage one's to the whole.

    >>> search = GeneralSearchUnit(top_k=1)
    >>> vectors = tf.constant([[[5.0], [1.0], [2.0]]])
    >>> history = LongHistory(vectors, tf.constant([[[False, True, True]]]), {})
    >>> search(Target(tf.constant([[[1.0]]]), {}), history).selected.numpy().tolist()
    [[[False, False, True]]]

    Args:
        top_k: How many positions to keep at most; a shorter history is kept whole.
    """

    def __init__(self, top_k: int = 50, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.top_k = check_positive("top_k", top_k)

    @classmethod
    def from_options(cls, options: Any, **kwargs: Any) -> GeneralSearchUnit:
        """Make the unit for ``top_k``."""
        return cls(options.top_k, **kwargs)

    def call(self, target: Target, history: LongHistory) -> SearchResult:
        """Search for each candidate; its weights go on to the attention."""
        # [users, candidates, long]
        scores = tf.stop_gradient(dot_scores(target.vector, history.vectors))
        whole = attention_weights(scores, history.mask)
        marks = top_k_marks(whole, self.top_k)
        # A softmax over some of the positions is that over all of them, rescaled: the greatest
        # weight is among those kept.
        kept = whole * marks
        kept = tf.math.divide_no_nan(kept, tf.reduce_sum(kept, axis=-1, keepdims=True))
        return SearchResult(marks > 0, DotWeights(kept, whole), marks)


@register_search_unit("hard")
@register_block
class HardSearchUnit(SearchUnit):
    """Hard search (SIM, https://arxiv.org/abs/2006.05639, equation 2).

        selected = the newest top_k positions it may see whose category is the target's

    It scores nothing: the attention that follows makes its own weights.

    >>> search = HardSearchUnit("category", top_k=1)
    >>> mask = tf.constant([[[False, True, True, True]]])
    >>> history = LongHistory(tf.ones([1, 4, 2]), mask, {"category": tf.constant([[7, 7, 7, 3]])})
    >>> found = search(Target(tf.ones([1, 1, 2]), {"category": tf.constant([[7]])}), history)
    >>> found.selected.numpy().tolist()
    [[[False, False, True, False]]]

    Args:
        category_feature: The target item's column that is its category.
        top_k: How many positions to keep at most.
    """

    def __init__(self, category_feature: str, top_k: int = 50, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        is_name = isinstance(category_feature, str)
        require(is_name, "category_feature", "name a column of the target item", category_feature)
        self.category_feature = category_feature
        self.top_k = check_positive("top_k", top_k)

    @classmethod
    def from_options(cls, options: Any, **kwargs: Any) -> HardSearchUnit:
        """Make the unit for ``category_feature`` and ``top_k``."""
        return cls(options.category_feature or "", options.top_k, **kwargs)

    def call(self, target: Target, history: LongHistory) -> SearchResult:
        """Search for each candidate's category in what it may see of its user's history."""
        category = target.ids[self.category_feature][:, :, tf.newaxis]  # [users, candidates, 1]
        is_same = history.ids[self.category_feature][:, tf.newaxis, :] == category
        same = history.mask & is_same  # [users, candidates, long]
        # Counted from the newest, which is the last: 1 at the newest match, 2 at the one before.
        # A GPU has no running sums of int32.
        rank = tf.cumsum(tf.cast(same, tf.float32), axis=-1, reverse=True)
        return SearchResult(same & (rank <= self.top_k))


LARGEST_EXACT = 2**24
"""Up to here float32 holds every whole number."""


@register_block
class HashSearchUnit(SearchUnit):
    """Search by Hamming distance (ETA, https://arxiv.org/abs/2108.04468, section 4.2).

        code(x) = signs of fixed random projections of x
        selected = the top_k positions it may see whose codes differ from code(e) in fewest signs

    Among equal distances, of which there are many, the newer position is taken. The codes of a
    history are made once a user. A search has no gradient.

    >>> search = HashSearchUnit(bits=16, top_k=1)
    >>> vectors = tf.constant([[[1.0, 2.0], [-1.0, -2.0], [1.0, 2.0], [1.0, 2.0]]])
    >>> history = LongHistory(vectors, tf.constant([[[True, True, True, False]]]), {})
    >>> search(Target(tf.constant([[[2.0, 4.0]]]), {}), history).selected.numpy().tolist()
    [[[False, False, True, False]]]

    Args:
        bits: How many signs a code has; more than twice the vectors' length gains nothing.
        top_k: How many positions to keep at most.
    """

    parts = ("projection",)

    def __init__(self, bits: int = 64, top_k: int = 48, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.top_k = check_positive("top_k", top_k)
        self.projection = RandomProjection(bits, name="projection")

    @property
    def bits(self) -> int:
        """How many signs a code has."""
        return self.projection.bits

    def call(self, target: Target, history: LongHistory) -> SearchResult:
        """Search for each candidate in what it may see of its user's history."""
        of_target = self.projection(target.vector)  # [users, candidates, bits]
        of_history = self.projection(history.vectors)  # [users, long, bits]
        # The product of two codes is bits - 2 x distance: whole numbers, exact in float32.
        agreeing = (tf.matmul(of_target, of_history, transpose_b=True) + float(self.bits)) / 2.0
        length = sizes(history.vectors)[1]
        if not isinstance(length, int) or (self.bits + 1) * length > LARGEST_EXACT:
            # Of equal weights the first are taken, which are the newest of a history turned round.
            newest_first = tf.reverse(tf.where(history.mask, agreeing + 1.0, 0.0), [-1])
            return SearchResult(tf.reverse(top_k_mask(newest_first, self.top_k), [-1]))
        # One number for both, as ties cost time: the more signs agree, and among equals the newer,
        # the greater.
        newest_last = tf.cast(tf.range(1, length + 1), tf.float32)
        ranked = agreeing * float(length) + newest_last
        return SearchResult(top_k_mask(tf.where(history.mask, ranked, 0.0), self.top_k))


MOST_BITS = 24
"""Bits of a hash at most: as a number it has to be exact in float32."""


@register_block
class CollisionSearchUnit(SearchUnit):
    """Sampling by hashes (SDIM, https://arxiv.org/abs/2205.10249, section 4).

        hash_j(x) = tau signs of fixed random projections of x,    j = 1..m
        strength_t = how many of the m hashes of h_t are those of e, divided by m

    Two vectors collide in a hash with the probability (1 - angle / pi)^tau, so that strengths
    are an attention's weights without a softmax, and need neither scores nor a top-k. A position is
    selected where it collides at all. Hashes of a history are made once a user.

    >>> search = CollisionSearchUnit(hashes=4, bits_per_hash=2)
    >>> vectors = tf.constant([[[1.0, 2.0], [-1.0, -2.0], [1.0, 2.0]]])
    >>> history = LongHistory(vectors, tf.constant([[[True, True, False]]]), {})
    >>> search(Target(tf.constant([[[2.0, 4.0]]]), {}), history).strength.numpy().tolist()
    [[[1.0, 0.0, 0.0]]]

    Args:
        hashes: How many, m.
        bits_per_hash: How many signs a hash has, tau.
    """

    parts = ("projection",)

    def __init__(self, hashes: int = 32, bits_per_hash: int = 4, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hashes = check_positive("hashes", hashes)
        self.bits_per_hash = check_positive("bits_per_hash", bits_per_hash)
        is_exact = bits_per_hash <= MOST_BITS
        require(is_exact, "bits_per_hash", f"be at most {MOST_BITS}", bits_per_hash)
        self.projection = RandomProjection(hashes * bits_per_hash, name="projection")

    def call(self, target: Target, history: LongHistory) -> SearchResult:
        """Count the collisions of each candidate with what it may see of its user's history."""
        of_target = self._hash(target.vector)[:, :, :, tf.newaxis]  # [m, users, candidates, 1]
        of_history = self._hash(history.vectors)[:, :, tf.newaxis, :]  # [m, users, 1, long]
        collisions = tf.add_n(
            [tf.cast(of_target[j] == of_history[j], tf.float32) for j in range(self.hashes)]
        )
        strength = tf.where(history.mask, collisions, 0.0) / float(self.hashes)
        return SearchResult(strength > 0.0, strength=strength)

    def _hash(self, vectors: tf.Tensor) -> tf.Tensor:
        """Return each hash as one number: [users, vectors, dim] -> [hashes, users, vectors]."""
        signs = tf.cast(self.projection(vectors) > 0.0, tf.float32)
        users, count, _ = sizes(vectors)
        signs = tf.reshape(signs, [users, count, self.hashes, self.bits_per_hash])
        powers = tf.constant([2.0**bit for bit in range(self.bits_per_hash)])
        return tf.transpose(tf.linalg.matvec(signs, powers), [2, 0, 1])


@register_block
class TargetSearchUnit(SearchUnit):
    """Search by the attention's own scores (TWIN, https://arxiv.org/abs/2302.02352, section 4).

        selected = the top_k positions of greatest softmax(score_i), on the mean over all heads

    so that ``top_k`` distinct positions are kept, whichever heads look at them. Scores are handed
    on to the attention unit, which has the same :class:`TargetAttention`: search and attention
    have the same parameters, and the scores are computed once. The choice has no gradient.

    Args:
        attention: The attention that search and attention unit share.
        top_k: How many positions to keep at most.
    """

    parts = ("attention",)

    def __init__(
        self, attention: TargetAttention | dict[str, Any], top_k: int = 100, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.attention: TargetAttention = part_from(attention)
        self.top_k = check_positive("top_k", top_k)

    def call(self, target: Target, history: LongHistory) -> SearchResult:
        """Search for each candidate in what it may see of its user's history."""
        scores = self.attention.scores(target.vector, history.vectors, history.time_vectors)
        mask = history.mask[:, :, tf.newaxis, :]
        weights = tf.reduce_mean(attention_weights(tf.stop_gradient(scores), mask), axis=2)
        return SearchResult(top_k_mask(weights, self.top_k), scores=scores)
