from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from merlin_sim.models.blocks.search.top_k_mask import top_k_mask


def expected_mask(weights, top_k):
    best = tf.math.top_k(weights, min(top_k, weights.shape[1]))
    expected = np.zeros(weights.shape, bool)
    np.put_along_axis(expected, best.indices.numpy(), best.values.numpy() > 0, axis=1)
    return expected


@settings(max_examples=60)
@given(
    weights=hnp.arrays(np.float32, (3, 9), elements=st.sampled_from([0.0, 0.125, 0.25, 0.5])),
    top_k=st.integers(1, 12),
)
def test_the_choice_is_that_of_top_k_ties_included(weights, top_k):
    found = top_k_mask(tf.constant(weights), top_k)
    np.testing.assert_array_equal(found, expected_mask(weights, top_k))


@pytest.mark.slow
@pytest.mark.parametrize("levels", [2, 4, 10_000])  # few levels: many ties, at zero too
@pytest.mark.parametrize("compiled", [False, True])
def test_the_choice_is_the_same_compiled(levels, compiled):
    weights = np.random.default_rng(levels).integers(0, levels, (50, 9)).astype(np.float32) / levels
    mark = tf.function(lambda given: top_k_mask(given, 3), jit_compile=compiled, autograph=False)
    np.testing.assert_array_equal(mark(tf.constant(weights)), expected_mask(weights, 3))


def test_no_rows():
    assert top_k_mask(tf.zeros([0, 9]), 3).shape == (0, 9)
