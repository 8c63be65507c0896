from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.checks import OptionError
from merlin_sim.models.blocks.search.general_search_unit import GeneralSearchUnit
from merlin_sim.models.blocks.search.search_and_attention import LongHistory, Target


def test_contract(contract_step, arrays):
    contract_step(lambda: GeneralSearchUnit(top_k=2), arrays.target_and_history)


def test_padding_is_never_kept_even_where_the_history_is_shorter_than_top_k(arrays):
    mask = arrays.mask(5, 6)
    # Padded positions look better than any real one.
    vectors = tf.where(mask[:, :, tf.newaxis], arrays.vectors(5, 6, 4), 100.0)
    target, history = Target(tf.ones([5, 4]), {}), LongHistory(vectors, mask, {})
    for top_k in (1, 4, 6, 50):
        found = GeneralSearchUnit(top_k)(target, history)
        assert not (found.selected & ~mask).numpy().any()
        kept = np.sum(found.selected.numpy(), axis=1)
        np.testing.assert_array_equal(kept, np.minimum(top_k, np.sum(mask.numpy(), axis=1)))


def test_top_k_of_nothing_is_an_error():
    message = "`top_k` should be a positive integer. Received: `top_k` = 0."
    with pytest.raises(OptionError, match=message):
        GeneralSearchUnit(0)


def test_both_weights_are_softmaxes_over_their_positions(arrays):
    target, history = arrays.target_and_history(5)
    found = GeneralSearchUnit(3)(target, history)
    exponentials = np.exp(np.einsum("bd,btd->bt", target.vector, history.vectors))
    for weights, positions in (
        (found.weights.kept, found.selected),
        (found.weights.whole, history.mask),
    ):
        expected = exponentials * positions.numpy()
        expected /= np.maximum(expected.sum(1, keepdims=True), 1e-9)
        np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("row", range(5))
def test_candidates_of_one_user_are_searched_for_alike(arrays, row):
    target, histories = arrays.target_and_history(5)
    history = tf.nest.map_structure(
        lambda part: None if part is None else part[row : row + 1], histories
    )
    unit = GeneralSearchUnit(2)
    ours = unit.for_candidates(history)(target)
    beside = tf.nest.map_structure(
        lambda part: None if part is None else tf.repeat(part, 5, axis=0), history
    )
    theirs = unit(target, beside)
    np.testing.assert_array_equal(ours.selected, theirs.selected)
    np.testing.assert_allclose(ours.weights.kept, theirs.weights.kept, rtol=1e-5, atol=1e-7)
