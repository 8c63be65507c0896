from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from merlin_sim.models.blocks.checks import OptionError
from merlin_sim.models.blocks.general_search_unit import GeneralSearchUnit


def test_contract(contract_step, arrays):
    contract_step(
        lambda: GeneralSearchUnit(top_k=2),
        lambda batch: (
            arrays.vectors(batch, 4),
            arrays.vectors(batch, 6, 4),
            arrays.mask(batch, 6),
        ),
    )


@settings(deadline=None, max_examples=60)
@given(
    weights=hnp.arrays(np.float32, (3, 9), elements=st.sampled_from([0.0, 0.125, 0.25, 0.5])),
    top_k=st.integers(1, 12),
)
def test_the_choice_is_that_of_top_k_ties_included(weights, top_k):
    k = min(top_k, 9)
    best = tf.math.top_k(weights, k)
    expected = np.zeros(weights.shape, bool)
    np.put_along_axis(expected, best.indices.numpy(), best.values.numpy() > 0, axis=1)
    np.testing.assert_array_equal(top_k_mask(tf.constant(weights), top_k), expected)


def test_padding_is_never_kept_even_where_the_history_is_shorter_than_top_k(arrays):
    mask = arrays.mask(5, 6)
    # Padded positions look better than any real one.
    history = tf.where(mask[:, :, tf.newaxis], arrays.vectors(5, 6, 4), 100.0)
    for top_k in (1, 4, 6, 50):
        found = GeneralSearchUnit(top_k)(tf.ones([5, 4]), history, mask)
        assert not (found.selected & ~mask).numpy().any()
        kept = np.sum(found.selected.numpy(), axis=1)
        np.testing.assert_array_equal(kept, np.minimum(top_k, np.sum(mask.numpy(), axis=1)))


def test_top_k_of_nothing_is_an_error():
    message = "`top_k` should be a positive integer. Received: `top_k` = 0."
    with pytest.raises(OptionError, match=message):
        GeneralSearchUnit(0)
