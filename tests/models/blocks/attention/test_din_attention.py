from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.attention import DINAttention
from merlin_sim.models.blocks.checks import OptionError


@pytest.mark.parametrize(("attention", "candidates"), [("dot", 1), ("activation_unit", 3)])
def test_contract(contract_step, arrays, attention, candidates):
    contract_step(
        lambda: DINAttention(attention),
        lambda batch: (
            arrays.vectors(batch, candidates, 4),
            arrays.vectors(batch, 6, 4),
            arrays.masks(batch, candidates, 6),
        ),
    )


@pytest.mark.parametrize("attention", ["dot", "activation_unit"])
def test_a_candidate_has_the_interest_it_would_have_alone(arrays, attention):
    layer, targets = DINAttention(attention), arrays.vectors(5, 3, 4)
    history, masks = arrays.vectors(5, 6, 4), arrays.masks(5, 3, 6)
    together = layer(targets, history, masks)
    alone = [layer(targets[:, i : i + 1], history, masks[:, i : i + 1]) for i in range(3)]
    np.testing.assert_allclose(together, tf.concat(alone, axis=1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attention", ["dot", "activation_unit"])
def test_one_row_of_the_mask_is_for_all_candidates(arrays, attention):
    layer, targets, history = DINAttention(attention), arrays.vectors(5, 3, 4), arrays.mask(5, 6)
    mask, history = history[:, tf.newaxis], arrays.vectors(5, 6, 4)
    for_each = layer(targets, history, tf.repeat(mask, 3, axis=1))
    np.testing.assert_allclose(layer(targets, history, mask), for_each, rtol=1e-6)


def test_an_empty_history_gives_zeros_whatever_stands_in_it(arrays):
    history, mask = arrays.vectors(1, 3, 2), tf.constant([[[False, False, False]]])
    interest = DINAttention()(tf.ones([1, 1, 2]), history, mask)
    assert interest.numpy().tolist() == [[[0.0, 0.0]]]


def test_one_position_is_the_interest(arrays):
    history, mask = arrays.vectors(1, 3, 2), tf.constant([[[False, False, True]]])
    interest = DINAttention("activation_unit")(tf.ones([1, 1, 2]), history, mask)
    np.testing.assert_allclose(interest, history[:, -1:], rtol=1e-6)


def test_padded_positions_do_not_matter(arrays):
    target, mask = arrays.vectors(5, 1, 4), arrays.mask(5, 6)
    history = arrays.vectors(5, 6, 4)
    other, mask = tf.where(mask[:, :, tf.newaxis], history, 1e3), mask[:, tf.newaxis]
    layer = DINAttention()
    np.testing.assert_array_equal(layer(target, history, mask), layer(target, other, mask))


def test_extreme_scores_have_no_nan():
    target = tf.constant([[[1e3, -1e3]]])
    history = tf.constant([[[1e3, 0.0], [0.0, 1e3], [0.0, 0.0]]])
    with tf.GradientTape() as tape:
        tape.watch([target, history])
        interest = DINAttention()(target, history, tf.constant([[[True, True, True]]]))
    gradients = tape.gradient(interest, [target, history])
    assert interest.numpy().tolist() == [[[1e3, 0.0]]]
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_an_unknown_attention_is_an_error():
    with pytest.raises(OptionError, match="'dot' or 'activation_unit'. Received: .*'cosine'"):
        DINAttention("cosine")
