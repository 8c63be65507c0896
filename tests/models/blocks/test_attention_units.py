"""What is made of the long history: attention to what a search found, and to the whole."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.attention import DINAttention, TargetAttention
from merlin_sim.models.blocks.search.attention_units import (
    CollisionAttentionUnit,
    ExactSearchUnit,
    MultiHeadSearchUnit,
    TargetAttentionUnit,
)
from merlin_sim.models.blocks.search.search_and_attention import (
    LongHistory,
    SearchResult,
    Target,
)
from merlin_sim.models.blocks.search.search_units import (
    CollisionSearchUnit,
    GeneralSearchUnit,
    TargetSearchUnit,
)


def search(arrays, batch, top_k=2):
    target, history = arrays.target_and_history(batch)
    return target, history, GeneralSearchUnit(top_k)(target, history)


@pytest.mark.parametrize(
    "make",
    [
        ExactSearchUnit,
        CollisionAttentionUnit,
        lambda: TargetAttentionUnit(TargetAttention(2, 3)),
    ],
)
def test_stage_one_attends_to_the_whole_long_history(make, arrays):
    target, history = arrays.target_and_history(5)
    find = CollisionSearchUnit(3, 2) if make is CollisionAttentionUnit else GeneralSearchUnit(2)
    searched = make()(target, history, find(target, history), stage_one=True).searched
    whole = DINAttention()(target.vector, history.vectors, history.mask)
    np.testing.assert_allclose(searched, whole, rtol=1e-5, atol=1e-6)


def gradients_of(target, history, found):
    with tf.GradientTape() as tape:
        tape.watch([target.vector, history.vectors])
        interest = ExactSearchUnit()(target, history, found, stage_one=True)
        loss = tf.add_n([tf.reduce_sum(part**2) for part in interest])
    return tape.gradient(loss, [target.vector, history.vectors])


def test_a_search_of_one_row_for_all_or_without_scores_gives_the_same(arrays):
    target, history, found = search(arrays, 5, top_k=3)
    of_all = history.mask[:, :1]
    for one, other in (
        (SearchResult(of_all), SearchResult(tf.repeat(of_all, 3, axis=1))),
        (found, SearchResult(found.selected)),
    ):
        results = (
            ExactSearchUnit()(target, history, given, stage_one=True) for given in (one, other)
        )
        for ours, theirs in zip(*results, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        both = (gradients_of(target, history, given) for given in (one, other))
        for ours, theirs in zip(*both, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_one_head_with_identity_kernels_is_the_published_attention(arrays):
    target, history, found = search(arrays, 5, top_k=3)
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


def test_sdim_is_the_mean_over_the_hashes_of_the_sum_of_what_has_the_candidates_code(arrays):
    target, history = arrays.target_and_history(5)
    hashes, bits = 3, 2
    find = CollisionSearchUnit(hashes, bits)
    found = find(target, history)
    attended = CollisionAttentionUnit(counts=True)(target, history, found).attended.numpy()
    projection = find.projection.projection.numpy().reshape(4, hashes, bits)
    items, mask = history.vectors.numpy(), history.mask.numpy()
    of_target = np.einsum("ucd,dhb->uchb", target.vector.numpy(), projection) >= 0
    of_history = np.einsum("uld,dhb->ulhb", items, projection) >= 0
    for user, place in np.ndindex(5, 3):
        sums, count = [], 0
        for j in range(hashes):
            same = (of_target[user, place, j] == of_history[user, :, j]).all(axis=-1)
            same &= mask[user, place]
            sums.append(items[user][same].sum(axis=0))
            count += same.sum()
        expected = [*np.mean(sums, axis=0), np.log1p(count / hashes)]
        np.testing.assert_allclose(attended[user, place], expected, rtol=1e-5, atol=1e-6)
    assert found.strength.numpy().max() > 0 and not found.strength.numpy()[~mask].any()
    np.testing.assert_array_equal(found.selected, found.strength > 0)


def test_one_attention_of_twin_searches_and_attends(arrays):
    target, history = arrays.target_and_history(5)
    attention = TargetAttention(2, 3)
    find, unit = TargetSearchUnit(attention, top_k=2), TargetAttentionUnit(attention)
    with tf.GradientTape() as tape:
        tape.watch(history.vectors)
        found = find(target, history)
        attended = unit(target, history, found).attended
        loss = tf.reduce_sum(attended**2)
    assert len(find.weights) == 3
    assert {id(w) for w in find.weights} == {id(w) for w in unit.weights}
    weights = unit.weights_over(target, history, history.mask).numpy().mean(axis=2)
    for user, place in np.ndindex(5, 3):
        seen = np.flatnonzero(history.mask[user, place])
        best = sorted(seen, key=lambda t: -weights[user, place, t])[:2]  # noqa: B023
        kept = np.flatnonzero(found.selected[user, place])
        assert kept.tolist() == sorted(best), "distinct positions, over all heads"
    alone = unit(target, history, SearchResult(found.selected)).attended
    np.testing.assert_allclose(attended, alone, rtol=1e-5, atol=1e-6)
    expected = attention(target.vector, history.vectors, found.selected)
    np.testing.assert_allclose(attended, expected, rtol=1e-5, atol=1e-6)
    of_history, *of_kernels = tape.gradient(loss, [history.vectors, *attention.weights])
    kept = found.selected.numpy().any(axis=1)
    assert np.abs(of_history.numpy()[kept]).max() > 0
    assert not of_history.numpy()[~kept].any()
    assert all(np.any(gradient) for gradient in of_kernels)
