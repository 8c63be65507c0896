"""How a candidate looks at a history: by the dot product, by a network, with several heads.

Candidates are [users, candidates, dim], histories [users, history, dim], and masks, True where a
position is real and the candidate may see it, [users, candidates, history] or one row for all
candidates of a user, [users, 1, history].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .activation_unit import ActivationUnit
from .checks import ATTENTIONS, check_choice, check_positive
from .serialization import ConfiguredBlock, register_block
from .shapes import by_window, is_one, repeat_windows, sizes


def masked_softmax(scores: tf.Tensor, history_mask: tf.Tensor) -> tf.Tensor:
    """Softmax over time in float32, padded positions left out.

    A history without any real position has equal weights everywhere, as in the published
    implementation: a sum of unmasked vectors with these weights needs the mask as a factor.

    >>> weights = masked_softmax(tf.constant([[0.0, 5.0, 5.0]]), tf.constant([[False, True, True]]))
    >>> weights.numpy().tolist()
    [[0.0, 0.5, 0.5]]

    Args:
        scores: [..., history].
        history_mask: bool, the same shape or one that is broadcast to it.
    """
    if scores.dtype != tf.float32:
        # A float16 score may have overflowed, and the softmax of an infinity is NaN.
        scores = tf.clip_by_value(tf.cast(scores, tf.float32), -1e30, 1e30)
    return tf.nn.softmax(tf.where(history_mask, scores, tf.float32.min), axis=-1)


def dot_scores(candidates: tf.Tensor, history: tf.Tensor) -> tf.Tensor:
    """Return each candidate's products with its history: [users, candidates, history], float32."""
    history = tf.cast(history, tf.float32)
    return tf.matmul(tf.cast(candidates, tf.float32), history, transpose_b=True)


MANY = 64
"""Candidates of a user whose products with a history are large enough one mask after the other."""


def attention_weights(scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Return the softmax of the scores where ``mask`` is True, and 0 elsewhere."""
    seen = tf.cast(mask, tf.float32)
    if scores.dtype == tf.float32 and is_one(sizes(mask)[-2]):
        # One row for several: adding it is quicker than choosing by it, and as good, because what
        # is left out counts nothing in the end.
        return tf.nn.softmax(scores + (1.0 - seen) * tf.float32.min) * seen
    return masked_softmax(scores, mask) * seen


def dot_attention_sums(
    candidates: tf.Tensor,
    history: tf.Tensor,
    weights: list[tf.Tensor],
    constant_rows: list[tf.Tensor],
) -> list[tf.Tensor]:
    """Attend to a history over several masks, and sum it with constant weights, in one product.

        sum_t softmax(scores over mask)_t h_t    for each mask,    sum_t row_t h_t    for each row

    For attention by the dot product alone: ``weights`` have to be :func:`attention_weights` of
    :func:`dot_scores` of the same candidates and history. The gradient is that of the whole, scores
    included, written out for this softmax of these products: weights that were made in any other
    way are summed rightly and silently get a wrong gradient. A block that scores otherwise
    multiplies weights and history with ``tf.matmul``.

    With w a softmax, g its sum's gradient and d = w (h g - sum_s w_s h_s g) that of the scores, the
    history's gradient is the sum of w g', the rows' share and d candidate', over all candidates of
    the user, which again is one product. Differentiated piece by piece, the history's gradient
    would be made once for each use of it and added up.

    Args:
        candidates: [users, candidates, dim].
        history: [users, history, dim].
        weights: Each [users, candidates, history], float32; no gradient flows through them.
        constant_rows: Likewise.

    Returns:
        One [users, candidates, dim], float32, for each of the weights and then for each row.
    """
    # The masks side by side, so that a user's candidates and masks are the rows of one product.
    apart = [tf.stop_gradient(row) for row in (*weights, *constant_rows)]
    rows = tf.stack(apart, axis=1)
    attended = len(weights)
    users, masks, count, length = sizes(rows)
    are_many = isinstance(count, int) and count >= MANY

    def flat(parts: tf.Tensor) -> tf.Tensor:
        """[users, masks, candidates, ...] -> [users, masks x candidates, ...]."""
        _, some, _, last = sizes(parts)
        return tf.reshape(parts, [users, some * count, last])

    @tf.custom_gradient
    def sums(target: tf.Tensor, vectors: tf.Tensor) -> tuple[tf.Tensor, Callable[..., object]]:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            soft = rows[:, :attended]
            of_rows = tf.matmul(flat(upstream[:, :attended]), vectors, transpose_b=True)
            of_rows = tf.reshape(of_rows, [users, attended, count, length])
            mean = tf.reduce_sum(soft * of_rows, axis=-1, keepdims=True)
            of_scores = tf.reduce_sum(soft * (of_rows - mean), axis=1)
            left = tf.concat([flat(rows), of_scores], axis=1)
            right = tf.concat([flat(upstream), target], axis=1)
            return tf.matmul(of_scores, vectors), tf.matmul(left, right, transpose_a=True)

        if are_many:
            return tf.stack([tf.matmul(row, vectors) for row in apart], axis=1), gradient
        products = tf.matmul(flat(rows), vectors)
        return tf.reshape(products, [users, masks, count, vectors.shape[-1]]), gradient

    products = sums(tf.cast(candidates, tf.float32), tf.cast(history, tf.float32))
    return list(tf.unstack(products, num=masks, axis=1))


@register_block
class DINAttention(ConfiguredBlock):
    """Weigh each position of a history by its score against a candidate, and sum.

        interest = sum_t softmax(score(candidate, h_t)) h_t     over the positions t it may see

    The score is the dot product, or an :class:`ActivationUnit` (DIN,
    https://arxiv.org/abs/1706.06978, equation 3; the softmax is the published implementation's).
    An empty history gives zeros.

    The products are computed in float32 under every policy: they decide a search, and there is
    no kernel in them that would gain from float16.

    >>> attention = DINAttention()
    >>> history = tf.constant([[[9.0, 9.0], [1.0, 0.0], [0.0, 1.0]]])
    >>> mask = tf.constant([[[False, True, True]]])
    >>> attention(tf.zeros([1, 1, 2]), history, mask).numpy().tolist()
    [[[0.5, 0.5]]]

    Args:
        attention: ``"dot"`` or ``"activation_unit"``.
    """

    def __init__(self, attention: str = "dot", **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.attention = check_choice("attention", attention, ATTENTIONS)
        self.activation_unit = None
        if attention == "activation_unit":
            self.activation_unit = ActivationUnit(dtype=self._dtype_policy, name="activation_unit")

    def build(self, input_shape: Any) -> None:
        """Create the activation unit's weights for candidates of [users, candidates, dim]."""
        if self.activation_unit is not None:
            self.activation_unit.build(input_shape)
        super().build(input_shape)

    def scores(self, candidates: tf.Tensor, history: tf.Tensor) -> tf.Tensor:
        """Return the scores before the softmax: [users, candidates, history], float32."""
        if self.activation_unit is not None:
            return tf.cast(self.activation_unit(candidates, history), tf.float32)
        return dot_scores(candidates, history)

    def call(
        self,
        candidates: tf.Tensor,
        history: tf.Tensor,
        history_mask: tf.Tensor,
        values: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Return the user's interest in each candidate: [users, candidates, dim].

        ``values``, like ``history``, are what is summed; None for the history that is scored.
        """
        scores = self.scores(candidates, history)  # [users, candidates, history]
        weights = attention_weights(scores, history_mask)
        if self.activation_unit is None and values is None:
            (interest,) = dot_attention_sums(candidates, history, [weights], [])
        else:
            taken = history if values is None else values
            interest = tf.matmul(weights, tf.cast(taken, tf.float32))
        return tf.cast(interest, self.compute_dtype)


@register_block
class TargetAttention(ConfiguredBlock):
    """Attend with each head to what a candidate may see (TWIN, arXiv 2302.02352, equations 5 to 8).

        score_i(t) = (e Q_i) . (h_t K_i) / sqrt(head_dim) + c_t b_i
        attended = [sum_t softmax(score_1)_t h_t V_1, ..., sum_t softmax(score_q)_t h_t V_q]

    c_t is what is known of the position beside the item, here its time, and b_i weighs it; without
    times there is no such term. Neither keys nor values of positions are made: (e Q) . (h K) =
    (e Q K') . h, so one vector for each head and candidate is multiplied with the history, and what
    is summed is the history itself. An empty history gives zeros.

    Scores, softmaxes and sums are float32 under every policy: they may decide a search.

    >>> attention = TargetAttention(heads=2, head_dim=3)
    >>> mask = tf.constant([[[False, True, True]]])
    >>> attention(tf.ones([1, 1, 4]), tf.ones([1, 3, 4]), mask).shape
    TensorShape([1, 1, 6])

    Args:
        heads: How many.
        head_dim: Length of the vectors that a head compares, and of those that it gives.
        time_dim: Length of the time vectors; 0 without.
    """

    def __init__(
        self, heads: int = 4, head_dim: int = 16, time_dim: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.heads = check_positive("heads", heads)
        self.head_dim = check_positive("head_dim", head_dim)
        self.time_dim = time_dim

    @property
    def attended_dim(self) -> int:
        """Length of what all heads give."""
        return self.heads * self.head_dim

    def build(self, input_shape: Any) -> None:
        """Create the kernels for candidates of [users, candidates, dim]."""
        if self.built:  # by another unit that has this attention too
            return
        dim = int(input_shape[-1])
        self.target_kernel = self._kernel("target_kernel", dim, self.attended_dim)
        self.history_kernel = self._kernel("history_kernel", dim, self.attended_dim)
        self.value_kernel = self._kernel("value_kernel", dim, self.attended_dim)
        if self.time_dim:
            self.time_kernel = self._kernel("time_kernel", self.time_dim, self.heads)
        super().build(input_shape)

    def _kernel(self, name: str, rows: int, columns: int) -> Any:
        return self.add_weight(name, [rows, columns], experimental_autocast=False)

    def _by_head(self, kernel: tf.Variable) -> tf.Tensor:
        """[dim, heads x head_dim] -> [dim, heads, head_dim]."""
        return tf.reshape(kernel, [-1, self.heads, self.head_dim])

    def scores(
        self, candidates: tf.Tensor, history: tf.Tensor, times: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Return the scores before the softmax: [users, candidates, heads, history], float32.

        ``times`` are [users, history, time_dim], or [users, windows, history, time_dim] with a
        window for as many candidates that follow each other.
        """
        users, count, dim = sizes(candidates)
        length = sizes(history)[1]
        query = tf.matmul(tf.cast(candidates, tf.float32), self.target_kernel)
        query = tf.reshape(query, [users, count, self.heads, self.head_dim])
        query = tf.einsum("uchk,dhk->uchd", query, self._by_head(self.history_kernel))
        query = tf.reshape(query, [users, count * self.heads, dim]) / self.head_dim**0.5
        scores = tf.matmul(query, tf.cast(history, tf.float32), transpose_b=True)
        scores = tf.reshape(scores, [users, count, self.heads, length])
        if not self.time_dim:
            return scores
        of_windows = by_window(tf.cast(times, tf.float32))
        of_time = tf.einsum("uwlt,th->uwhl", of_windows, self.time_kernel)
        return scores + repeat_windows(of_time, candidates)

    def attend(self, weights: tf.Tensor, history: tf.Tensor) -> tf.Tensor:
        """Sum a history with weights of [users, candidates, heads, history]: [.., attended_dim]."""
        users, count, heads, length = sizes(weights)
        weights = tf.reshape(weights, [users, count * heads, length])
        sums = tf.matmul(weights, tf.cast(history, tf.float32))
        sums = tf.reshape(sums, [users, count, heads, sizes(history)[2]])
        attended = tf.einsum("uchd,dhk->uchk", sums, self._by_head(self.value_kernel))
        attended = tf.reshape(attended, [users, count, self.attended_dim])
        return tf.cast(attended, self.compute_dtype)

    def call(
        self,
        candidates: tf.Tensor,
        history: tf.Tensor,
        history_mask: tf.Tensor,
        times: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Return the user's interest in each candidate: [users, candidates, attended_dim]."""
        scores = self.scores(candidates, history, times)
        weights = attention_weights(scores, history_mask[:, :, tf.newaxis, :])
        return self.attend(weights, history)


FIRST_BIAS = -2.0
"""Where the biases start: a position that nothing is known of counts about an eighth."""


@register_block
class SummedAttention(TargetAttention):
    """Sum what each head finds, where a softmax would give its mean.

        w_t = sigmoid(score(t) + b)    over what a candidate may see,    n = sum_t w_t
        summed = [log(1 + n) / n  sum_t w_t h_t V,  log(1 + n)]    for each head

    with the scores of :class:`TargetAttention`. DIN's paper (https://arxiv.org/abs/1706.06978,
    section 4.3) leaves the softmax out too, to keep the intensity of interests; the logarithm keeps
    a thousand positions from outweighing all else. An empty history gives zeros.

    >>> attention = SummedAttention(heads=2, head_dim=3)
    >>> mask = tf.ones([1, 1, 3], tf.bool)
    >>> attention(tf.ones([1, 1, 4]), tf.ones([1, 3, 4]), mask).shape
    TensorShape([1, 1, 8])
    """

    @property
    def summed_dim(self) -> int:
        """Length of what a call gives: all heads' vectors and how much each found."""
        return self.attended_dim + self.heads

    def build(self, input_shape: Any) -> None:
        """Create kernels and biases for candidates of [users, candidates, dim]."""
        if self.built:
            return
        self.bias = self.add_weight(
            "bias",
            [self.heads],
            initializer=tf.keras.initializers.Constant(FIRST_BIAS),
            experimental_autocast=False,
        )
        super().build(input_shape)

    def call(
        self,
        candidates: tf.Tensor,
        history: tf.Tensor,
        history_mask: tf.Tensor,
        times: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Return what all heads sum up: [users, candidates, :attr:`summed_dim`]."""
        scores = self.scores(candidates, history, times)
        strengths = tf.sigmoid(scores + self.bias[:, tf.newaxis])
        weights = tf.where(history_mask[:, :, tf.newaxis, :], strengths, 0.0)
        found = tf.reduce_sum(weights, axis=-1)  # [users, candidates, heads]
        counted = tf.math.log1p(found)
        weights *= tf.math.divide_no_nan(counted, found)[..., tf.newaxis]
        summed = self.attend(weights, history)
        return tf.concat([summed, tf.cast(counted, summed.dtype)], axis=-1)
