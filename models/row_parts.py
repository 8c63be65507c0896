"""A function of many rows, computed in parts that run side by side."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

ROWS_PER_PART = 512
"""Rows of a part that the caches hold (see ``benchmarks/bench_candidates.py``)."""
MOST_ROWS = 2048
"""Rows of a part at most where arithmetic is fused, and little is to be held in between."""
MOST_POSITIONS = 2**22
"""Positions of histories in all such parts that run side by side, about, at most: 512 MiB of
vectors of 32 numbers, with which SIM takes 1.3 GiB in all. Parts have :data:`ROWS_PER_PART` rows
all the same."""


def in_parts(
    function: Callable[[dict[str, tf.Tensor]], tf.Tensor],
    rows: dict[str, tf.Tensor],
    rows_per_part: int = ROWS_PER_PART,
) -> tf.Tensor:
    """Apply a function of rows to parts of about the same size, and join what it gives.

    A product of a few hundred rows is too small for TensorFlow to share between processor cores,
    and what follows waits for it. Parts wait for nothing of each other.

    >>> in_parts(lambda rows: rows["x"][:, tf.newaxis], {"x": tf.range(5.0)}, 2).shape
    TensorShape([5, 1])

    Args:
        function: Gives [rows, 1], float32, each row of it from the same row of its input.
        rows: Name -> [rows, ...].
        rows_per_part: Rows of a part at most.
    """
    count = tf.shape(next(iter(rows.values())))[0]
    parts = tf.maximum((count + rows_per_part - 1) // rows_per_part, 1)
    results = tf.TensorArray(tf.float32, parts, element_shape=[None, 1], infer_shape=False)

    def compute(part: tf.Tensor, results: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        begin, end = count * part // parts, count * (part + 1) // parts
        result = function({name: values[begin:end] for name, values in rows.items()})
        return part + 1, results.write(part, result)

    _, results = tf.while_loop(lambda part, _: part < parts, compute, [0, results])
    return results.concat()
