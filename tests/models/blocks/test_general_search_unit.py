from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

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


def test_both_attentions_are_softmaxes_over_their_positions(arrays):
    target, history, mask = arrays.vectors(5, 4), arrays.vectors(5, 6, 4), arrays.mask(5, 6)
    found = GeneralSearchUnit(3)(target, history, mask)
    exponentials = np.exp(np.einsum("bd,btd->bt", target, history))
    for weights, positions in (
        (found.attention, found.selected),
        (found.long_attention, found.long_mask),
    ):
        expected = exponentials * positions.numpy()
        expected /= np.maximum(expected.sum(1, keepdims=True), 1e-9)
        np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-7)
