"""What a search keeps of the long history: the split, the top k, and each search unit."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from merlin_sim.foundation.gpu_forms import gpu_forms
from merlin_sim.models.blocks.checks import OptionError
from merlin_sim.models.blocks.search import top_k_mask as top_k_mask_module
from merlin_sim.models.blocks.search.history_split import HistorySplit
from merlin_sim.models.blocks.search.search_and_attention import LongHistory, Target
from merlin_sim.models.blocks.search.search_units import (
    CollisionSearchUnit,
    GeneralSearchUnit,
    HardSearchUnit,
    HashSearchUnit,
    RandomProjection,
)
from merlin_sim.models.blocks.search.top_k_mask import top_k_mask


def test_each_candidate_sees_the_places_before_its_end_and_not_one_more():
    split, real = HistorySplit(3, 2), tf.constant([[False, *[True] * 7]])
    ids = tf.constant([[0, 1, 2, 3, 4, 5, 6, 7]])
    ends = tf.constant([[8, 6, 5, 1, 0]])
    (parts, masks) = split(ids, ends), split.masks(real, ends)
    assert parts.long.numpy().tolist() == [[0, 1, 2, 3, 4, 5]]
    seen = [ids[0].numpy()[:6][mask].tolist() for mask in masks.long[0].numpy()]
    assert seen == [[3, 4, 5], [1, 2, 3], [1, 2], [], []]
    assert parts.short.numpy().tolist() == [[[6, 7], [4, 5], [3, 4], [0, 0], [0, 0]]]
    assert masks.short.numpy().tolist() == [[[True] * 2] * 3 + [[False] * 2] * 2]


def test_without_ends_the_last_positions_are_the_short_history(arrays):
    long, short = HistorySplit(2, 1)(tf.constant([[1, 2, 3]]))
    assert long.numpy().tolist() == [[1, 2]] and short.numpy().ravel().tolist() == [3]
    split, real = HistorySplit(4, 2), arrays.mask(5, 6)
    for ours, theirs in zip(split.masks(real, tf.fill([5, 3], 6)), split.masks(real), strict=True):
        np.testing.assert_array_equal(ours, tf.repeat(theirs, 3, axis=1))


def expected_mask(weights, top_k):
    best = tf.math.top_k(weights, min(top_k, weights.shape[1]))
    expected = np.zeros(weights.shape, bool)
    np.put_along_axis(expected, best.indices.numpy(), best.values.numpy() > 0, axis=1)
    return expected


@settings(max_examples=60)
@given(
    weights=hnp.arrays(np.float32, (3, 9), elements=st.sampled_from([0.0, 0.125, 0.25, 0.5])),
    top_k=st.integers(1, 12),
)
def test_the_choice_is_that_of_top_k_ties_included(weights, top_k):
    found = top_k_mask(tf.constant(weights), top_k)
    np.testing.assert_array_equal(found, expected_mask(weights, top_k))


@pytest.mark.parametrize("compiled", [False, True], ids=["graph", "XLA"])
@pytest.mark.parametrize("most_ranked", [None, 512, 8], ids=["CPU", "GPU", "GPU, many positions"])
def test_the_choice_is_the_same_on_every_device(most_ranked, compiled, monkeypatch):
    monkeypatch.setattr(top_k_mask_module, "MOST_RANKED", most_ranked)
    mark = tf.function(lambda given: top_k_mask(given, 3), jit_compile=compiled, autograph=False)
    for levels in (2, 4, 10_000):  # few levels: many ties, at zero too
        chance = np.random.default_rng(levels)
        weights = chance.integers(0, levels, (50, 9)).astype(np.float32) / levels
        with gpu_forms(most_ranked is not None):
            found = mark(tf.constant(weights))
        np.testing.assert_array_equal(found, expected_mask(weights, 3))
    assert top_k_mask(tf.zeros([0, 9]), 3).shape == (0, 9)


@pytest.mark.parametrize("make", [GeneralSearchUnit, lambda top_k: HashSearchUnit(16, top_k)])
def test_neither_padding_nor_what_comes_later_is_kept_however_near(make, arrays):
    """Also where the history is shorter than the number of positions that are kept."""
    masks = arrays.masks(5, 3, 6)
    seen_by_all = tf.reduce_all(masks, axis=1)[:, :, tf.newaxis]
    vectors = tf.where(seen_by_all, -tf.ones([5, 6, 4]), tf.ones([5, 6, 4]))
    history = LongHistory(vectors, masks, {})
    for top_k in (1, 4, 6, 50):
        found = make(top_k)(Target(tf.ones([5, 3, 4]), {}), history)
        assert not (found.selected & ~masks).numpy().any()
        kept = np.sum(found.selected.numpy(), axis=-1)
        np.testing.assert_array_equal(kept, np.minimum(top_k, np.sum(masks.numpy(), axis=-1)))


def test_hard_search_keeps_the_newest_of_the_targets_category():
    categories = tf.constant([[3, 3, 1, 3, 2, 3], [0, 0, 1, 2, 2, 1], [0, 0, 0, 0, 0, 0]])
    # 4 is nowhere; 0 pads and must not match padding
    target = Target(tf.ones([3, 1, 1]), {"category": tf.constant([[3], [4], [0]])})
    mask = (categories > 0)[:, tf.newaxis]
    history = LongHistory(tf.ones([3, 6, 1]), mask, {"category": categories})
    found = HardSearchUnit("category", 2)(target, history)
    expected = [[False, False, False, True, False, True], [False] * 6, [False] * 6]
    np.testing.assert_array_equal(found.selected[:, 0], expected)
    assert found.weights is None, "it scored nothing"
    # The newest are those that the candidate sees.
    ends = tf.constant([[[6], [5], [3]]])
    target = Target(tf.ones([1, 3, 1]), {"category": tf.constant([[3, 3, 1]])})
    of_one = {"category": categories[:1]}
    history = LongHistory(tf.ones([1, 6, 1]), tf.range(6) < ends, of_one)
    found = HardSearchUnit("category", 2)(target, history).selected.numpy()
    assert [np.flatnonzero(kept).tolist() for kept in found[0]] == [[3, 5], [1, 3], [2]]


@pytest.mark.parametrize("top_k", [1, 3, 50])
def test_the_nearest_codes_are_kept_and_the_newer_of_equal_ones(arrays, top_k):
    target, history = arrays.target_and_history(5)
    unit = HashSearchUnit(bits=5, top_k=top_k)
    selected = unit(target, history).selected.numpy()
    projection, mask = unit.projection.projection.numpy(), history.mask.numpy()
    of_target = target.vector.numpy() @ projection >= 0
    of_history = history.vectors.numpy() @ projection >= 0
    for user, place in np.ndindex(5, 3):
        distance = (of_target[user, place] != of_history[user]).sum(axis=1)
        seen = np.flatnonzero(mask[user, place])
        nearest = sorted(seen, key=lambda t: (distance[t], -t))[:top_k]  # noqa: B023
        assert np.flatnonzero(selected[user, place]).tolist() == sorted(nearest)


def test_of_equal_codes_the_newest_are_kept_however_many_bits_and_positions():
    """Bits x positions is beyond the whole numbers that float32 can tell apart."""
    bits, places = 4096, 5000
    vectors = tf.ones([1, places, 4])
    mask = tf.constant([[[True] * (places - 1) + [False]]])
    found = HashSearchUnit(bits, 3)(Target(tf.ones([1, 1, 4]), {}), LongHistory(vectors, mask, {}))
    assert np.flatnonzero(found.selected).tolist() == [places - 4, places - 3, places - 2]


def test_signs_of_a_known_projection_that_is_never_trained():
    projection = RandomProjection(2)
    projection.build(tf.TensorShape([None, 2]))
    projection.projection.assign([[1.0, -1.0], [1.0, 1.0]])
    for training in (True, False):
        codes = projection(tf.constant([[2.0, 1.0], [-2.0, 1.0], [0.0, 0.0]]), training=training)
        np.testing.assert_array_equal(codes, [[1, -1], [-1, 1], [1, 1]])
    assert not projection.trainable_variables and len(projection.non_trainable_variables) == 1


def test_codes_agree_as_often_as_the_angle_says():
    tf.keras.utils.set_random_seed(4)
    codes = RandomProjection(20_000)(tf.constant([[1.0, 0.0], [5.0, 5.0]])).numpy()
    np.testing.assert_allclose(np.mean(codes[0] == codes[1]), 0.75, atol=0.02)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HistorySplit(-1, 1), "`long_length.* = -1"),
        (lambda: HistorySplit(1, -1), "`short.* = -1"),
        (
            lambda: GeneralSearchUnit(0),
            "`top_k` should be a positive integer. Received: `top_k` = 0.",
        ),
        (lambda: HardSearchUnit(5), "`category_feature` should name a column"),
        (lambda: HashSearchUnit(bits=0), "`bits` should be a positive integer"),
        (lambda: CollisionSearchUnit(hashes=0), "`hashes`"),
        (lambda: CollisionSearchUnit(bits_per_hash=25), "`bits_per_hash`"),
    ],
)
def test_refused_options(make, message):
    with pytest.raises(OptionError, match=message):
        make()
