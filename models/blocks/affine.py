"""The product that every layer here is made of, in the form that TensorFlow fuses."""

from __future__ import annotations

import tensorflow as tf


def affine(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Return ``inputs kernel + bias``; what follows, such as a sigmoid, is fused into it.

    >>> affine(tf.ones([1, 2]), tf.ones([2, 1]), tf.constant([3.0])).numpy().tolist()
    [[5.0]]

    Args:
        inputs: [batch, dim].
        kernel: [dim, units].
        bias: [units].

    Returns:
        [batch, units].
    """
    return tf.nn.bias_add(tf.matmul(inputs, kernel), bias)
