"""TWIN's search, and the attention of ETA and TWIN to what a search found."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.attention import DINAttention, TargetAttention
from merlin_sim.models.blocks.search.attention_units import TargetAttentionUnit
from merlin_sim.models.blocks.search.search_and_attention import SearchResult
from merlin_sim.models.blocks.search.search_units import TargetSearchUnit


@pytest.mark.parametrize("time_dim", [0, 3])
def test_contract_of_the_search(contract_step, arrays, time_dim):
    contract_step(
        lambda: TargetSearchUnit(TargetAttention(2, 3, time_dim), top_k=2),
        lambda batch: arrays.target_and_history(batch, time_dim),
    )


@pytest.mark.parametrize("stage_one", [False, True])
def test_contract_of_the_attention(contract_step, arrays, stage_one):
    def inputs(batch):
        target, history = arrays.target_and_history(batch, 2)
        return target, history, SearchResult(history.mask), stage_one

    contract_step(lambda: TargetAttentionUnit(TargetAttention(2, 3, time_dim=2)), inputs)


def test_one_attention_searches_and_attends(arrays):
    target, history = arrays.target_and_history(5)
    attention = TargetAttention(2, 3)
    search, unit = TargetSearchUnit(attention, top_k=2), TargetAttentionUnit(attention)
    found = search(target, history)
    assert len(search.weights) == 3
    assert {id(w) for w in search.weights} == {id(w) for w in unit.weights}
    weights = unit.weights_over(target, history, history.mask).numpy().mean(axis=2)
    for user, place in np.ndindex(5, 3):
        seen = np.flatnonzero(history.mask[user, place])
        best = sorted(seen, key=lambda t: -weights[user, place, t])[:2]  # noqa: B023
        kept = np.flatnonzero(found.selected[user, place])
        assert kept.tolist() == sorted(best), "distinct positions, over all heads"
    attended = unit(target, history, found).attended
    alone = unit(target, history, SearchResult(found.selected)).attended
    np.testing.assert_allclose(attended, alone, rtol=1e-5, atol=1e-6)
    expected = attention(target.vector, history.vectors, found.selected)
    np.testing.assert_allclose(attended, expected, rtol=1e-5, atol=1e-6)


def test_the_gradient_reaches_the_kernels_through_what_was_found_alone(arrays):
    target, history = arrays.target_and_history(5)
    attention = TargetAttention(2, 3)
    search, unit = TargetSearchUnit(attention, top_k=2), TargetAttentionUnit(attention)
    with tf.GradientTape() as tape:
        tape.watch(history.vectors)
        found = search(target, history)
        loss = tf.reduce_sum(unit(target, history, found).attended ** 2)
    of_history, *of_kernels = tape.gradient(loss, [history.vectors, *attention.weights])
    kept = found.selected.numpy().any(axis=1)
    assert np.abs(of_history.numpy()[kept]).max() > 0
    assert not of_history.numpy()[~kept].any()
    assert all(np.any(gradient) for gradient in of_kernels)


def test_stage_one_attends_to_the_whole_long_history(arrays):
    target, history = arrays.target_and_history(5)
    unit = TargetAttentionUnit(TargetAttention(2, 3))
    interest = unit(target, history, SearchResult(history.mask), stage_one=True)
    whole = DINAttention()(target.vector, history.vectors, history.mask)
    np.testing.assert_allclose(interest.searched, whole, rtol=1e-5, atol=1e-6)
