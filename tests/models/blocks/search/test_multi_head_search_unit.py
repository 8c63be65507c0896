from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.search.attention_units import ExactSearchUnit, MultiHeadSearchUnit
from merlin_sim.models.blocks.search.search_and_attention import (
    LongHistory,
    SearchResult,
    Target,
)
from merlin_sim.models.blocks.search.search_units import GeneralSearchUnit


@pytest.mark.parametrize(("stage_one", "time_dim"), [(False, 0), (True, 3)])
def test_contract(contract_step, arrays, time_dim, stage_one):
    def inputs(batch):
        target, history = arrays.target_and_history(batch, time_dim)
        return target, history, GeneralSearchUnit(2)(target, history), stage_one

    contract_step(lambda: MultiHeadSearchUnit(2, 5, time_dim), inputs)


def test_one_head_with_identity_kernels_is_the_published_attention(arrays):
    target, history = arrays.target_and_history(5)
    found = GeneralSearchUnit(3)(target, history)
    unit = MultiHeadSearchUnit(heads=1, head_dim=4)
    unit.build(tf.TensorShape([None, 4]))
    unit.set_weights([np.eye(4)[:, None, :]] * 2)
    ours, published = unit(target, history, found), ExactSearchUnit()(target, history, found)
    np.testing.assert_allclose(ours.attended, published.attended, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ours.mean, published.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        unit.weights_over(target, history, history.mask),
        ExactSearchUnit().weights_over(target, history, history.mask),
        rtol=1e-4,
        atol=1e-6,
    )


def test_times_can_decide_the_attention():
    mask, times = tf.constant([[[True, True]]]), tf.constant([[[0.0], [1.0]]])
    target = Target(tf.ones([1, 1, 1]), {})
    history = LongHistory(tf.ones([1, 2, 1]), mask, {}, times)
    unit = MultiHeadSearchUnit(heads=1, head_dim=1, time_dim=1)
    unit.build(tf.TensorShape([None, 1]))
    unit.set_weights([np.ones([1, 1, 1]), np.array([0.0, 50.0]).reshape(2, 1, 1)])
    interest = unit(target, history, SearchResult(mask))
    assert interest.attended.numpy().tolist() == [[[1.0, pytest.approx(1.0)]]]
    assert unit.reads_times and unit.attended_dim(1) == 2


def test_a_candidate_has_the_interest_it_would_have_alone(arrays):
    target, history = arrays.target_and_history(5, time_dim=2)
    unit = MultiHeadSearchUnit(heads=2, head_dim=3, time_dim=2)
    together = unit(target, history, SearchResult(history.mask), stage_one=True)
    for place in range(3):
        alone = unit(
            Target(target.vector[:, place : place + 1], {}),
            history._replace(mask=history.mask[:, place : place + 1]),
            SearchResult(history.mask[:, place : place + 1]),
            stage_one=True,
        )
        for ours, theirs in zip(together, alone, strict=True):
            np.testing.assert_allclose(ours[:, place], theirs[:, 0], rtol=1e-5, atol=1e-6)
