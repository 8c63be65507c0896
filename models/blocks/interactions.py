"""Interactions of the vectors of several features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from merlin.models.tf.core.base import Block

from .checks import check_positive
from .serialization import ConfiguredBlock, register_block


@register_block
class CrossLayers(ConfiguredBlock):
    """Multiply the inputs into a linear function of each layer before.

        x_{i+1} = x_0 * (W_i x_i + b_i) + x_i           of full rank,
        x_{i+1} = x_0 * (V_i U_i x_i + b_i) + x_i       of low rank

    (https://arxiv.org/abs/2008.13535, equations 1 and 2). Kernels start normal after Glorot, biases
    at 0. ``mm.CrossBlock`` gives the same numbers; its layers have no precision of their own, so
    that within a mixed model they would be those of the process.

    >>> CrossLayers(layers=2, rank=3)(tf.ones([4, 8])).shape
    TensorShape([4, 8])

    Args:
        layers: How many.
        rank: Length of ``U x``; None for full rank.
    """

    def __init__(self, layers: int = 3, rank: int | None = 512, **kwargs: Any) -> None:
        """Check the options; ``build`` knows how wide the inputs are."""
        super().__init__(**kwargs)
        self.layers = check_positive("layers", layers)
        self.rank = None if rank is None else check_positive("rank", rank)
        self.u: list[tf.keras.layers.Dense] = []
        self.v: list[tf.keras.layers.Dense] = []

    def build(self, input_shape: Any) -> None:
        """Create the weights for inputs of [batch, dim]."""
        dim = int(input_shape[-1])
        for layer in range(self.layers):
            if self.rank is not None:
                self.u.append(self._dense(f"u_{layer}", dim, self.rank, use_bias=False))
            self.v.append(self._dense(f"v_{layer}", self.rank or dim, dim))
        super().build(input_shape)

    def _dense(self, name: str, dim: int, units: int, **kwargs: Any) -> tf.keras.layers.Dense:
        kwargs |= {"kernel_initializer": "glorot_normal", "dtype": self._dtype_policy}
        dense = tf.keras.layers.Dense(units, name=name, **kwargs)
        dense.build(tf.TensorShape([None, dim]))
        return dense

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Cross: [batch, dim] -> [batch, dim]."""
        crossed = inputs
        for layer, v in enumerate(self.v):
            projected = crossed if self.rank is None else self.u[layer](crossed)
            crossed = inputs * v(projected) + crossed
        return crossed

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """[batch, dim] -> [batch, dim]."""
        return tf.TensorShape([input_shape[0], input_shape[-1]])


@register_block
class DotInteraction(Block):
    """One dot product for each pair of different vectors (https://arxiv.org/abs/1906.00091).

    They stand as in the lower triangle of the matrix of all products, without its diagonal, row by
    row: (1, 0), (2, 0), (2, 1), (3, 0) and so on, which is the published order;
    ``mm.DotProductInteraction`` has that of the upper one.

    >>> vectors = tf.constant([[[1.0, 0.0], [2.0, 5.0], [3.0, 1.0]]])
    >>> DotInteraction()(vectors).numpy().tolist()
    [[2.0, 3.0, 11.0]]
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Multiply all pairs: [batch, vectors, dim] -> [batch, vectors x (vectors - 1) / 2]."""
        count, pairs = inputs.shape[1], number_of_pairs(inputs.shape[1])
        below, pair_of = _pair_indices(count)

        @tf.custom_gradient
        def pair_products(vectors: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tf.Tensor]]:
            products = tf.matmul(vectors, vectors, transpose_b=True)  # [batch, vectors, vectors]
            flat = tf.reshape(products, [-1, count * count])

            def gradient(upstream: tf.Tensor) -> tf.Tensor:
                # A pair's gradient stands on both sides of the diagonal, which has none: one
                # product in place of two, and nothing is added up element by element.
                both = tf.gather(tf.pad(upstream, [[0, 0], [0, 1]]), pair_of, axis=1)
                return tf.matmul(tf.reshape(both, [-1, count, count]), vectors)

            return tf.ensure_shape(tf.gather(flat, below, axis=1), [None, pairs]), gradient

        return pair_products(inputs)

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """[batch, vectors, dim] -> [batch, pairs]."""
        return tf.TensorShape([input_shape[0], number_of_pairs(input_shape[1])])


def number_of_pairs(vectors: int) -> int:
    """Count the pairs of different vectors.

    >>> number_of_pairs(27)
    351
    """
    return vectors * (vectors - 1) // 2


def _pair_indices(count: int) -> tuple[Any, Any]:
    """The index of each pair in the flat matrix, and of each of its elements, the pair."""
    rows, columns = np.tril_indices(count, -1)
    pair_of = np.full((count, count), len(rows), np.int32)  # the diagonal: a column of zeros
    pair_of[rows, columns] = pair_of[columns, rows] = np.arange(len(rows))
    return (rows * count + columns).astype(np.int32), pair_of.reshape(-1)
