from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.din_attention import DINAttention
from merlin_sim.models.blocks.exact_search_unit import ExactSearchUnit
from merlin_sim.models.blocks.general_search_unit import GeneralSearchUnit


def search(arrays, batch, top_k=2):
    target, history = arrays.vectors(batch, 4), arrays.vectors(batch, 6, 4)
    return target, history, GeneralSearchUnit(top_k)(target, history, arrays.mask(batch, 6))


@pytest.mark.parametrize("stage_one", [False, True])
def test_contract(contract_step, arrays, stage_one):
    contract_step(ExactSearchUnit, lambda batch: (*search(arrays, batch), stage_one))


def test_masking_gives_what_gathering_the_kept_positions_would(arrays):
    target, history, found = search(arrays, 5, top_k=3)
    interest = ExactSearchUnit()(target, history, found)
    for row in range(5):
        kept = found.selected[row].numpy()
        gathered = history.numpy()[row, kept]
        scores = np.exp(gathered @ target.numpy()[row])
        attended = (scores[:, None] * gathered).sum(0) / scores.sum() if kept.any() else np.zeros(4)
        np.testing.assert_allclose(interest.attended[row], attended, rtol=1e-4, atol=1e-6)
        mean = gathered.sum(0) / (kept.sum() + 1)
        np.testing.assert_allclose(interest.mean[row], mean, rtol=1e-5, atol=1e-6)


def test_stage_one_attends_to_the_whole_long_history(arrays):
    target, history, found = search(arrays, 5)
    searched = ExactSearchUnit()(target, history, found, stage_one=True).searched
    whole = DINAttention()(target, history, found.long_mask)
    np.testing.assert_allclose(searched, whole, rtol=1e-5, atol=1e-6)


def test_the_gradient_reaches_target_and_history(arrays):
    target, history, found = search(arrays, 5)
    with tf.GradientTape() as tape:
        tape.watch([target, history])
        interest = ExactSearchUnit()(target, history, found)
        loss = tf.reduce_sum(interest.attended**2)
    of_target, of_history = tape.gradient(loss, [target, history])
    kept = found.selected.numpy()
    assert np.abs(of_target.numpy()[2:]).max() > 0
    assert np.abs(of_history.numpy()[kept]).max() > 0
    assert np.abs(of_history.numpy()[~kept]).max() == 0
