from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.checks import OptionError
from merlin_sim.models.blocks.search.search_and_attention import LongHistory, Target
from merlin_sim.models.blocks.search.search_units import GeneralSearchUnit


def test_contract(contract_step, arrays):
    contract_step(lambda: GeneralSearchUnit(top_k=2), arrays.target_and_history)


def test_padding_is_never_kept_even_where_the_history_is_shorter_than_top_k(arrays):
    mask = arrays.mask(5, 6)
    # Padded positions look better than any real one.
    vectors = tf.where(mask[:, :, tf.newaxis], arrays.vectors(5, 6, 4), 100.0)
    target = Target(tf.ones([5, 3, 4]), {})
    masks = arrays.masks(5, 3, 6)  # nor what another candidate alone may see
    history = LongHistory(vectors, masks, {})
    for top_k in (1, 4, 6, 50):
        found = GeneralSearchUnit(top_k)(target, history)
        assert not (found.selected & ~masks).numpy().any()
        kept = np.sum(found.selected.numpy(), axis=-1)
        np.testing.assert_array_equal(kept, np.minimum(top_k, np.sum(masks.numpy(), axis=-1)))


def test_top_k_of_nothing_is_an_error():
    message = "`top_k` should be a positive integer. Received: `top_k` = 0."
    with pytest.raises(OptionError, match=message):
        GeneralSearchUnit(0)


def test_both_weights_are_softmaxes_over_their_positions(arrays):
    target, history = arrays.target_and_history(5)
    found = GeneralSearchUnit(3)(target, history)
    exponentials = np.exp(np.einsum("umd,utd->umt", target.vector, history.vectors))
    for weights, positions in (
        (found.weights.kept, found.selected),
        (found.weights.whole, history.mask),
    ):
        expected = exponentials * positions.numpy()
        expected /= np.maximum(expected.sum(-1, keepdims=True), 1e-9)
        np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("row", range(5))
def test_candidates_of_one_user_are_searched_for_alike(arrays, row):
    targets, histories = arrays.target_and_history(5, candidates=4)
    vectors, mask = histories.vectors[row : row + 1], histories.mask[row : row + 1, :1]
    candidates = tf.reshape(targets.vector, [20, 4])
    unit = GeneralSearchUnit(2)
    ours = unit(Target(candidates[tf.newaxis], {}), LongHistory(vectors, mask, {}))
    beside = LongHistory(tf.repeat(vectors, 20, axis=0), tf.repeat(mask, 20, axis=0), {})
    theirs = unit(Target(candidates[:, tf.newaxis], {}), beside)
    np.testing.assert_array_equal(ours.selected[0], theirs.selected[:, 0])
    kept = theirs.weights.kept[:, 0]
    np.testing.assert_allclose(ours.weights.kept[0], kept, rtol=1e-5, atol=1e-7)
