"""Whether what is traced now should have the form that a GPU wants.

A processor keeps in its cache what a GPU has to write to its memory and read again, and goes
quickly through what a GPU has to wait for. Where that makes two forms of one computation, both give
the same but for rounding, and this is the one place that says which is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import tensorflow as tf

_chosen: ContextVar[bool | None] = ContextVar("gpu_forms", default=None)


def has_gpu_forms() -> bool:
    """Return whether a GPU's forms are taken: where TensorFlow has a GPU, unless it is set."""
    chosen = _chosen.get()
    return bool(tf.config.list_logical_devices("GPU")) if chosen is None else chosen


@contextmanager
def gpu_forms(chosen: bool) -> Iterator[None]:
    """Take a GPU's forms within this block, or a processor's, whatever devices there are.

    For tests, and to count without a GPU what a step costs on one.

    >>> with gpu_forms(True):
    ...     has_gpu_forms()
    True
    """
    token = _chosen.set(chosen)
    try:
        yield
    finally:
        _chosen.reset(token)
