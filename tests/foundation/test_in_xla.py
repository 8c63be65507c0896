"""Bisection finds what tf.searchsorted finds, and XLA goes over no keys."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.foundation.in_xla import search_sorted

MOST = np.iinfo(np.int64).max


@pytest.mark.slow
@pytest.mark.parametrize("side", ["left", "right"])
def test_it_finds_what_searchsorted_finds(side):
    """Among ties, before the first key, after the last one, and however many keys there are."""
    random = np.random.default_rng(4)
    specs = [tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, None], tf.int64)]
    search = tf.function(
        lambda keys, wanted: search_sorted(keys, wanted, side),
        input_signature=specs,
        jit_compile=True,
        autograph=False,
    )
    for size in (1, 2, 3, 7, 8, 9, 100):
        keys = np.sort(random.integers(0, size, size))
        keys[size - size // 4 :] = MOST  # as tensors of users are filled up
        wanted = np.array([[-1, 0, size // 2], [size - 1, size, MOST]])
        found = search(tf.constant(keys), tf.constant(wanted))
        np.testing.assert_array_equal(found, np.searchsorted(keys, wanted, side))
        assert found.dtype == tf.int64
        in_tensorflow = search_sorted(tf.constant(keys), tf.constant(wanted), side)
        np.testing.assert_array_equal(in_tensorflow, found)
    none = tf.function(
        lambda: search_sorted(tf.zeros([0], tf.int64), wanted), jit_compile=True, autograph=False
    )
    assert not none().numpy().any()


@pytest.mark.slow
def test_xla_makes_nothing_as_long_as_the_keys():
    keys, wanted = tf.range(1_000_003, dtype=tf.int64), tf.range(7, dtype=tf.int64)
    search = tf.function(search_sorted, jit_compile=True, autograph=False)
    program = search.experimental_get_compiler_ir(keys, wanted)(stage="optimized_hlo")
    assert set(re.findall(r"\w+\[[\d,]*1000003[\d,]*\]", program)) == {"s64[1000003]"}  # the keys
