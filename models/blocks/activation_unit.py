"""The activation unit: how much a position of the history matters to a candidate."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ...foundation.gpu_forms import has_gpu_forms
from ...parallel.steps.fused import fused
from .checks import check_dims
from .mlp import affine, build_in_turn, dense_layers
from .serialization import ConfiguredBlock, register_block
from .shapes import Size, as_rows, is_one, sizes

FEW = 4
"""Candidates that a GPU multiplies one by one."""


@register_block
class ActivationUnit(ConfiguredBlock):
    """Score each position by a small network over candidate and position.

        score(t) = MLP([e, h_t, e - h_t, e * h_t])

    with sigmoid hidden layers and one linear unit at the end. DIN (https://arxiv.org/abs/1706.06978,
    section 4.3) applies it to item vectors, DIEN (https://arxiv.org/abs/1809.03672, the attention
    of the interest evolving layer) to the states of its first GRU.

    The first product is taken apart, [e, h, e - h, e * h] W = (W1 + W3) e + (W2 - W3) h +
    W4 (e * h), so that the parts that concern only the candidate, or only the position, are
    computed once for each of them and nothing is concatenated.

    >>> scores = ActivationUnit()(tf.ones([2, 3, 8]), tf.ones([2, 5, 8]))
    >>> scores.shape
    TensorShape([2, 3, 5])

    Args:
        hidden_dims: Sizes of the hidden layers.
    """

    def __init__(self, hidden_dims: tuple[int, ...] = (80, 40), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hidden_dims = check_dims("hidden_dims", hidden_dims, at_least=1)
        policy = self._dtype_policy
        self.dense = dense_layers(self.hidden_dims, "sigmoid", policy)
        last = f"dense_{len(self.hidden_dims)}"
        self.dense.append(tf.keras.layers.Dense(1, dtype=policy, name=last))

    def build(self, input_shape: Any) -> None:
        """Create the weights for candidates of [users, candidates, dim]."""
        build_in_turn(self.dense, 4 * int(input_shape[-1]))
        super().build(input_shape)

    def call(self, candidates: tf.Tensor, history: tf.Tensor) -> tf.Tensor:
        """Return the scores of vectors, [users, .., dim]: [users, candidates, history]."""
        # Keras casts a layer's first input only.
        history = tf.cast(history, self.compute_dtype)
        of_item, of_history, of_product = self._half_kernels()
        count, length = candidates.shape[1], history.shape[1]
        # Of a kernel for each candidate, a GPU would write and read `units` vectors.
        if has_gpu_forms() and length is not None and length <= of_item.shape[-1]:
            return self._scores_by_pairs(candidates, history)
        if count is None or (length is not None and length < count):
            return self._scores(candidates, history, [of_item, of_history, of_product])
        scores = self._scores(history, candidates, [of_history, of_item, of_product])
        return tf.transpose(scores, [0, 2, 1])

    def _scores(self, many: tf.Tensor, few: tf.Tensor, kernels: list[tf.Tensor]) -> tf.Tensor:
        """Score pairs: [users, many, dim] and [users, few, dim] to [users, many, few].

        The few are multiplied into the kernel first: one kernel for each of a user's few, side by
        side, makes all its pairs' products one product, and no pair has a vector of its own.
        """
        of_many, of_few, of_product = (kernel[:, tf.newaxis, :] for kernel in kernels)
        users, few_count, dim = sizes(few)
        units, many_count = of_many.shape[-1], sizes(many)[1]
        kernel = _kernels(tf.transpose(few, [0, 2, 1]), of_product, of_many)
        kernel = tf.reshape(kernel, [users, dim, few_count * units])
        bias = affine(as_rows(few), of_few[:, 0], self._half_bias())  # [users x few, units]
        bias = tf.reshape(bias, [users, 1, few_count * units])
        if many.shape[0] == 1:  # of one user, TensorFlow makes one operation of all three
            hidden = tf.tanh(affine(many[0], kernel[0], bias[0, 0]))
        else:
            hidden = _tanh_of_sum(tf.matmul(many, kernel), bias)
        hidden = tf.reshape(hidden, [users * many_count * few_count, units])
        scores = self._after_tanh(hidden, *self._half_second())
        return tf.reshape(scores, [users, many_count, few_count])

    def _scores_by_pairs(self, candidates: tf.Tensor, history: tf.Tensor) -> tf.Tensor:
        """Score them by one product for all pairs of all users: a GPU has no cache for kernels."""
        of_item, of_history, of_product = self._half_kernels()
        (users, count, dim), length = sizes(candidates), sizes(history)[1]
        units, pairs_count = of_item.shape[-1], users * count * length
        item = affine(as_rows(candidates), of_item, self._half_bias())
        item = tf.reshape(item, [users, count, 1, units])
        products = _products(candidates, history)  # [users, candidates, history, dim]
        if is_one(count):  # a position has one pair, and both of its vectors are one row
            both = tf.concat([history, products[:, 0]], axis=-1)
            hidden = tf.matmul(as_rows(both), tf.concat([of_history, of_product], axis=0))
            hidden = tf.reshape(hidden, [users, 1, length, units]) + item
        else:
            of_position = tf.matmul(as_rows(history), of_history)
            hidden = tf.matmul(tf.reshape(products, [pairs_count, dim]), of_product)
            hidden = tf.reshape(hidden, [users, count, length, units]) + item
            hidden += tf.reshape(of_position, [users, 1, length, units])
        hidden = tf.tanh(tf.reshape(hidden, [pairs_count, units]))
        return tf.reshape(self._after_tanh(hidden, *self._half_second()), [users, count, length])

    def score_each(
        self, target_item: tf.Tensor, positions: list[tf.Tensor], sharing: Size = 1
    ) -> tf.Tensor:
        """Return the scores of positions that stand one by one, as a recurrence makes them.

        One position after the other stays in a processor's cache; a GPU takes all at once.

        Args:
            target_item: [samples, dim].
            positions: Each [samples / sharing, dim].
            sharing: How many samples, one after the other, share a row of positions.

        Returns:
            [samples, positions].
        """
        if has_gpu_forms():
            history = tf.stack(positions, axis=1)  # [samples / sharing, positions, dim]
            item = tf.reshape(target_item, [sizes(history)[0], sharing, target_item.shape[-1]])
            return as_rows(self._scores_by_pairs(item, history))
        of_item, of_history, of_product = self._half_kernels()
        item = tf.matmul(target_item, of_item)  # [samples, units]
        bias, second = self._half_bias(), self._half_second()
        scores = []
        for position in positions:
            of_position = tf.matmul(position, of_history)
            hidden = affine(_product(target_item, position), of_product, bias)
            hidden = _tanh_of_pairs(hidden, item, of_position)
            scores.append(self._after_tanh(hidden, *second))  # [samples, 1]
        return tf.concat(scores, axis=1)

    def _half_bias(self) -> tf.Tensor:
        return 0.5 * tf.convert_to_tensor(self.dense[0].bias)

    def _half_kernels(self) -> list[tf.Tensor]:
        """Return half of the first kernel: the item's, the history's and their product's part."""
        kernel = 0.5 * tf.cast(tf.convert_to_tensor(self.dense[0].kernel), self.compute_dtype)
        item, history, difference, product = tf.split(kernel, 4, axis=0)
        return [item + difference, history - difference, product]

    def _half_second(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the second layer's weights for the tanh of half the first layer's sums.

        sigmoid(x) = (1 + tanh(x / 2)) / 2, for which TensorFlow takes two thirds of the time; what
        is left to add and to halve is in these weights.
        """
        second = self.dense[1]
        half = 0.5 * tf.cast(tf.convert_to_tensor(second.kernel), self.compute_dtype)
        return half, tf.convert_to_tensor(second.bias) + tf.reduce_sum(half, axis=0)

    def _after_tanh(self, hidden: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """Run the layers after the first, the second with these weights: [rows, 1]."""
        hidden = self.dense[1].activation(affine(hidden, kernel, bias))
        for dense in self.dense[2:]:
            hidden = dense(hidden)
        return hidden


@fused
def _product(of_samples: tf.Tensor, of_rows: tf.Tensor) -> tf.Tensor:
    """Multiply samples with what several of them, one after the other, share: [samples, dim]."""
    rows, dim = sizes(of_rows)
    together = tf.reshape(of_samples, [rows, -1, dim]) * tf.expand_dims(of_rows, 1)
    return tf.reshape(together, [-1, dim])


@fused
def _kernels(few: tf.Tensor, of_product: tf.Tensor, of_many: tf.Tensor) -> tf.Tensor:
    """Multiply each of the few, [users, dim, few], into a kernel: [users, dim, few, units]."""
    return tf.expand_dims(few, -1) * of_product + of_many


@fused
def _tanh_of_sum(product: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    return tf.tanh(product + bias)


@fused
def _tanh_of_pairs(hidden: tf.Tensor, item: tf.Tensor, of_rows: tf.Tensor) -> tf.Tensor:
    """Add up what a layer is the sum of, the last of which several samples share."""
    rows, units = sizes(of_rows)
    together = tf.reshape(hidden + item, [rows, -1, units]) + tf.expand_dims(of_rows, 1)
    return tf.reshape(tf.tanh(together), [-1, units])


def _products(candidates: tf.Tensor, history: tf.Tensor) -> tf.Tensor:
    """Multiply each candidate with each position: [users, candidates, history, dim].

    Few candidates one by one: the gradient adds their parts up, and no transposed copy is made.
    """
    count = candidates.shape[1]
    if count is None or count > FEW:
        return candidates[:, :, tf.newaxis] * history[:, tf.newaxis]
    each = tf.unstack(candidates, axis=1)
    return tf.stack([candidate[:, tf.newaxis] * history for candidate in each], axis=1)
