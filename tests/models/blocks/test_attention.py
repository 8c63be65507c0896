"""Attention to a history, and to what a search found of a long one, beyond the golden cases."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.activation_unit import ActivationUnit
from merlin_sim.models.blocks.attention import (
    DINAttention,
    SummedAttention,
    TargetAttention,
    masked_softmax,
)
from merlin_sim.models.blocks.checks import OptionError
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


def test_extreme_scores_have_no_nan():
    target = tf.constant([[[1e3, -1e3]]])
    history = tf.constant([[[1e3, 0.0], [0.0, 1e3], [0.0, 0.0]]])
    with tf.GradientTape() as tape:
        tape.watch([target, history])
        interest = DINAttention()(target, history, tf.constant([[[True, True, True]]]))
    gradients = tape.gradient(interest, [target, history])
    assert interest.numpy().tolist() == [[[1e3, 0.0]]]
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    for dtype in (np.float32, np.float16):
        largest = np.finfo(dtype).max
        scores = tf.constant([[largest, -largest, 0.0]], dtype)
        if dtype == np.float16:
            scores = tf.concat([scores * 2, scores], axis=0)  # infinities
        weights = masked_softmax(scores, tf.ones(scores.shape, tf.bool))
        np.testing.assert_array_equal(weights, [[1.0, 0.0, 0.0]] * scores.shape[0])


def attend_slowly(attention, target, keys, mask, times):
    """Attention of one candidate, head by head, with keys and values that are written out."""
    query, key, value = (
        kernel.numpy().reshape(4, 2, 3)
        for kernel in (attention.target_kernel, attention.history_kernel, attention.value_kernel)
    )
    heads = []
    for head in range(2):
        scores = (keys @ key[:, head]) @ (target @ query[:, head]) / np.sqrt(3)
        scores = scores + times @ attention.time_kernel.numpy()[:, head]
        weights = np.exp(scores) * mask
        weights /= max(weights.sum(), 1e-30)
        heads.append(weights @ (keys @ value[:, head]))
    return np.concatenate(heads)


def test_target_attention_is_that_with_keys_and_values(arrays):
    attention, times = TargetAttention(2, 3, time_dim=2), arrays.vectors(5, 6, 2)
    target, history, mask = arrays.attention(5)
    attended = attention(target, history, mask, times).numpy()
    for user, candidate in np.ndindex(5, 3):
        parts = target[user, candidate], history[user], mask[user, candidate], times[user]
        expected = attend_slowly(attention, *(part.numpy() for part in parts))
        np.testing.assert_allclose(attended[user, candidate], expected, rtol=1e-4, atol=1e-6)
    assert not attended[0].any(), "an empty history"
    for_all = mask[:, :1]
    for_each = attention(target, history, tf.repeat(for_all, 3, axis=1), times)
    np.testing.assert_array_equal(attention(target, history, for_all, times), for_each)


def test_summed_attention_is_the_weighed_mean_times_the_logarithm_of_how_much(arrays):
    attention, (target, history, mask) = SummedAttention(1, 3), arrays.attention(5)
    ours = attention(target, history, mask).numpy()
    query, key, value, bias = (
        variable.numpy()
        for variable in (
            *(attention.target_kernel, attention.history_kernel),
            *(attention.value_kernel, attention.bias),
        )
    )
    for user, candidate in np.ndindex(5, 3):
        items = history[user].numpy()
        scores = (items @ key) @ (target[user, candidate].numpy() @ query) / np.sqrt(3) + bias
        weights = mask[user, candidate].numpy() / (1 + np.exp(-scores))
        count = weights.sum()
        mean = weights @ (items @ value) / max(count, 1e-30)
        expected = [*(np.log1p(count) * mean), np.log1p(count)]
        np.testing.assert_allclose(ours[user, candidate], expected, rtol=1e-4, atol=1e-6)
    assert not ours[0].any(), "an empty history"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ActivationUnit(()), r"`hidden_dims` .*\(1 or more\)"),
        (lambda: DINAttention("cosine"), "'dot' or 'activation_unit'. Received: .*'cosine'"),
        (lambda: TargetAttention(heads=0), "`heads` should be a positive integer"),
    ],
)
def test_refused_options(make, message):
    with pytest.raises(OptionError, match=message):
        make()


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
    for user, candidate in np.ndindex(5, 3):
        sums, count = [], 0
        for j in range(hashes):
            same = (of_target[user, candidate, j] == of_history[user, :, j]).all(axis=-1)
            same &= mask[user, candidate]
            sums.append(items[user][same].sum(axis=0))
            count += same.sum()
        expected = [*np.mean(sums, axis=0), np.log1p(count / hashes)]
        np.testing.assert_allclose(attended[user, candidate], expected, rtol=1e-5, atol=1e-6)
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
    for user, candidate in np.ndindex(5, 3):
        seen = np.flatnonzero(history.mask[user, candidate])
        best = sorted(seen, key=lambda t: -weights[user, candidate, t])[:2]  # noqa: B023
        kept = np.flatnonzero(found.selected[user, candidate])
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
