"""Arithmetic on the elements of tensors in one pass over memory.

TensorFlow goes over memory once for each operation, forward and backward, and keeps what lies
between for the gradient. Of a recurrence on a processor that takes as long as its products.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from ...foundation.gpu_forms import has_gpu_forms

MANY_SAMPLES = 2048
"""Samples of a rank's batch from which fused arithmetic is worth a second of compilation."""

_enabled: ContextVar[bool] = ContextVar("fused", default=False)


@contextmanager
def fused_arithmetic(enabled: bool = True) -> Iterator[None]:
    """Within this block let functions that are :func:`fused` be compiled, on a processor."""
    token = _enabled.set(enabled and not has_gpu_forms())
    try:
        yield
    finally:
        _enabled.reset(token)


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have XLA compile a function of float tensors that has no products of matrices in it.

    Its gradient is compiled too, and computes anew what it needs of what lies between inputs and
    outputs. That is so within :func:`fused_arithmetic`; elsewhere the function stays as it is, as
    each shape that it meets costs a compilation.

    >>> @fused
    ... def scaled_tanh(inputs: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    ...     return scale * tf.tanh(inputs)
    >>> with fused_arithmetic():
    ...     scaled_tanh(tf.zeros([2, 3]), tf.ones([3])).shape
    TensorShape([2, 3])
    """
    forward = tf.function(function, jit_compile=True, autograph=False)

    @tf.function(jit_compile=True, autograph=False)
    def backward(inputs: tuple[tf.Tensor, ...], upstream: tuple[tf.Tensor, ...]) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = tf.nest.flatten(function(*inputs))
        return tape.gradient(outputs, inputs, list(upstream))

    @tf.custom_gradient
    def compiled(*inputs: tf.Tensor) -> tuple[Any, Callable[..., Any]]:
        return forward(*inputs), lambda *upstream: backward(inputs, upstream)

    @functools.wraps(function)
    def call(*inputs: tf.Tensor) -> Any:
        return compiled(*inputs) if _enabled.get() else function(*inputs)

    return call
