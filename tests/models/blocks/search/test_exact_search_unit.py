from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.attention import DINAttention
from merlin_sim.models.blocks.search.attention_units import ExactSearchUnit
from merlin_sim.models.blocks.search.search_and_attention import SearchResult
from merlin_sim.models.blocks.search.search_units import GeneralSearchUnit


def search(arrays, batch, top_k=2):
    target, history = arrays.target_and_history(batch)
    return target, history, GeneralSearchUnit(top_k)(target, history)


@pytest.mark.parametrize("stage_one", [False, True])
def test_contract(contract_step, arrays, stage_one):
    contract_step(ExactSearchUnit, lambda batch: (*search(arrays, batch), stage_one))


def test_masking_gives_what_gathering_the_kept_positions_would(arrays):
    target, history, found = search(arrays, 5, top_k=3)
    interest = ExactSearchUnit()(target, history, found)
    for row, place in np.ndindex(5, 3):
        kept = found.selected[row, place].numpy()
        gathered = history.vectors.numpy()[row, kept]
        scores = np.exp(gathered @ target.vector.numpy()[row, place])
        attended = (scores[:, None] * gathered).sum(0) / scores.sum() if kept.any() else np.zeros(4)
        np.testing.assert_allclose(interest.attended[row, place], attended, rtol=1e-4, atol=1e-6)
        mean = gathered.sum(0) / (kept.sum() + 1)
        np.testing.assert_allclose(interest.mean[row, place], mean, rtol=1e-5, atol=1e-6)


def test_stage_one_attends_to_the_whole_long_history(arrays):
    target, history, found = search(arrays, 5)
    searched = ExactSearchUnit()(target, history, found, stage_one=True).searched
    whole = DINAttention()(target.vector, history.vectors, history.mask)
    np.testing.assert_allclose(searched, whole, rtol=1e-5, atol=1e-6)


def gradients_of(target, history, found):
    with tf.GradientTape() as tape:
        tape.watch([target.vector, history.vectors])
        interest = ExactSearchUnit()(target, history, found, stage_one=True)
        loss = tf.add_n([tf.reduce_sum(part**2) for part in interest])
    return tape.gradient(loss, [target.vector, history.vectors])


def test_the_gradient_reaches_target_and_history(arrays):
    target, history, found = search(arrays, 5)
    with tf.GradientTape() as tape:
        tape.watch([target.vector, history.vectors])
        interest = ExactSearchUnit()(target, history, found)
        loss = tf.reduce_sum(interest.attended**2)
    of_target, of_history = tape.gradient(loss, [target.vector, history.vectors])
    kept = found.selected.numpy().any(axis=1)
    assert np.abs(of_target.numpy()[2:]).max() > 0
    assert np.abs(of_history.numpy()[kept]).max() > 0
    assert np.abs(of_history.numpy()[~kept]).max() == 0


def test_one_row_found_for_all_candidates_is_the_same_for_each(arrays):
    target, history = arrays.target_and_history(5)
    for_all = SearchResult(history.mask[:, :1])
    for_each = SearchResult(tf.repeat(history.mask[:, :1], 3, axis=1))
    both = (gradients_of(target, history, result) for result in (for_all, for_each))
    for ours, theirs in zip(*both, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_search_that_scored_nothing_has_the_same_attention_and_gradient(arrays):
    target, history, found = search(arrays, 5, top_k=3)
    without = SearchResult(found.selected)
    with_weights, made_here = (
        ExactSearchUnit()(target, history, result, stage_one=True) for result in (found, without)
    )
    for ours, theirs in zip(made_here, with_weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    both = (gradients_of(target, history, result) for result in (found, without))
    for ours, theirs in zip(*both, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
