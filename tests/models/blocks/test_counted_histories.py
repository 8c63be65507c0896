"""What is counted of a history: of ids, of cosines, and summed up by prototypes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from merlin_sim.models.blocks.checks import OptionError
from merlin_sim.models.blocks.history_counts import HistoryCounts, HistorySimilarity
from merlin_sim.models.blocks.history_prototypes import HistoryPrototypes


def count_slowly(target, visible, length, windows):
    """The numbers of one candidate and one feature, over a list of ids, oldest first."""
    numbers = []
    for window in (*windows, length):
        newest = visible[-window:]
        numbers.append(np.log1p(newest.count(target)) / np.log1p(window))
    for window in (*windows, length):
        newest = visible[-window:]
        numbers.append(newest.count(target) / max(len(newest), 1))
    age = visible[::-1].index(target) if target in visible else length
    return [*numbers, 1 - np.log1p(age) / np.log1p(length)]


@pytest.mark.parametrize("ends", [None, [[9, 5, 3, 0], [9, 7, 8, 2]]])
def test_they_are_those_of_the_positions_that_a_candidate_sees(ends):
    length, windows = 6 if ends else 9, (2, 4)
    history = np.array([[0, 0, 1, 2, 2, 1, 3, 2, 1], [2, 1, 1, 2, 3, 3, 1, 1, 2]])
    target = np.array([[1, 2, 3, 1], [2, 0, 3, 1]])
    seen = tf.constant(history > 0), None if ends is None else tf.constant(ends)
    block = HistoryCounts(length, windows)
    ours = block({"item": tf.constant(target)}, {"item": tf.constant(history)}, *seen).numpy()
    assert ours.shape == (2, 4, block.counts_dim(1))
    for user, index in np.ndindex(2, 4):
        end = 9 if ends is None else ends[user][index]
        visible = [int(i) for i in history[user, max(end - length, 0) : end] if i]
        expected = count_slowly(int(target[user, index]), visible, length, windows)
        positions = np.log1p(len(visible)) / np.log1p(length)
        np.testing.assert_allclose(ours[user, index], [*expected, positions], atol=1e-6)


def test_windows_as_long_as_the_history_are_left_out():
    assert HistoryCounts(length=30).counts_dim(2) == 2 * (2 * 2 + 1) + 1
    with pytest.raises(OptionError, match="`windows`"):
        HistoryCounts(length=30, windows=(0,))


def test_similarity_counts_cosines_in_21_bins(arrays):
    similarity = HistorySimilarity()
    similarity.build(None)
    weights = np.linspace(0.5, 2.0, 21).astype(np.float32)
    similarity.set_weights([weights])
    target, history, mask = (part.numpy() for part in arrays.attention(5))
    history[:, 2] = 3 * target[:, 0]  # the same direction
    history[:, 3] = -target[:, 1]
    ours = similarity(*map(tf.constant, (target, history, mask))).numpy()
    for user, index in np.ndindex(5, 3):
        one = target[user, index].astype(np.float64)
        counts = np.zeros(21)
        for position in history[user][mask[user, index]]:
            cosine = one @ position / np.linalg.norm(one) / np.linalg.norm(position)
            counts[20 if cosine > 0.998 else max(0, int(np.floor((cosine + 1) * 10)))] += 1
        np.testing.assert_allclose(ours[user, index], weights * np.log1p(counts), rtol=1e-6)
    assert not ours[0].any(), "an empty history"
    assert mask[:, 0, 2].any() and (ours[mask[:, 0, 2], 0, 20] > 0).all()


def test_the_very_same_items_stay_in_the_last_bin_where_products_are_rounded(monkeypatch):
    """As by TF32 on a GPU, which drops all bits of a number but ten."""
    matmul = tf.matmul

    def rounded(*factors, **kwargs):
        bits = [tf.bitcast(factor, tf.int32) & ~0x1FFF for factor in factors]
        return matmul(*(tf.bitcast(factor, tf.float32) for factor in bits), **kwargs)

    monkeypatch.setattr(tf, "matmul", rounded)
    vectors = tf.constant(np.random.default_rng(2).normal(size=[100, 1, 32]), tf.float32)
    found = HistorySimilarity()(vectors, vectors, tf.ones([100, 1, 1], tf.bool)).numpy()
    assert (found[:, 0, 20] > 0).all()


@pytest.fixture(scope="module")
def block():
    tf.keras.utils.set_random_seed(3)
    made = HistoryPrototypes(3, heads=2, head_dim=2)
    made.build(tf.TensorShape([None, None, 4]))
    for variable in made.trainable_variables:
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
    return made


def softmax(scores):
    exponents = np.exp(scores - scores.max())
    return exponents / exponents.sum()


def test_a_position_is_distributed_over_the_prototypes_by_its_direction(block, arrays):
    history, mask = arrays.vectors(5, 6, 4), arrays.masks(5, 3, 6)
    ours = block.summarize(history, mask).numpy()
    prototypes = block.vectors.numpy().astype(np.float64)
    for user, window in np.ndindex(5, 3):
        expected = np.zeros((3, 5))
        for position in history.numpy()[user][mask.numpy()[user, window]].astype(np.float64):
            shares = softmax(prototypes @ position / np.linalg.norm(position))
            expected += shares[:, None] * np.append(position, 1.0)
        np.testing.assert_allclose(ours[user, window], expected, rtol=1e-5, atol=1e-6)


def test_the_target_attends_to_means_that_count_for_positions_of_its_prototypes(block, arrays):
    target, history = arrays.vectors(1, 1, 4), arrays.vectors(1, 6, 4)
    summary = block.summarize(history, tf.ones([1, 1, 6], tf.bool))
    ours = block(target, summary).numpy()[0, 0]
    sums, counts = summary.numpy()[0, 0, :, :4], summary.numpy()[0, 0, :, 4]
    means, attention = sums / counts[:, None], block.attention
    one = target.numpy()[0, 0]
    counts = counts * softmax(block.vectors.numpy() @ one / np.linalg.norm(one))
    kernels = (attention.target_kernel, attention.history_kernel, attention.value_kernel)
    query, keys, values = (
        vectors @ kernel.numpy()
        for vectors, kernel in zip((target.numpy()[0, 0], means, means), kernels, strict=True)
    )
    attended, found = [], []
    for head in (slice(0, 2), slice(2, 4)):
        scores = keys[:, head] @ query[head] / 2**0.5
        attended.append(softmax(scores + np.log(counts)) @ values[:, head])
        strengths = 1 / (1 + np.exp(-scores - block.bias.numpy()[head.start // 2]))
        found.append(np.log1p(counts @ strengths))
    np.testing.assert_allclose(ours, [*attended[0], *attended[1], *found], rtol=1e-5)


@given(st.lists(st.integers(0, 3), max_size=40), st.randoms(use_true_random=False))
def test_the_summary_is_the_sum_of_those_of_any_parts_in_any_order(block, parts, chance):
    """Each position goes to one of four parts."""
    vectors = np.random.default_rng(len(parts)).normal(size=(1, len(parts), 4)).astype(np.float32)

    def summarize(indices):
        of_places = tf.constant(vectors[:, indices])
        return block.summarize(of_places, tf.ones([1, 1, len(indices)], tf.bool)).numpy()

    whole = summarize(list(range(len(parts))))
    grown = np.zeros_like(whole)
    for part in chance.sample(range(4), 4):
        grown += summarize([index for index, of in enumerate(parts) if of == part])
    np.testing.assert_allclose(grown, whole, rtol=1e-5, atol=1e-5)
    assert abs(whole[..., -1].sum() - len(parts)) < 1e-4


def test_an_empty_history_gives_zeros(block, arrays):
    none = block.summarize(arrays.vectors(1, 6, 4), tf.zeros([1, 1, 6], tf.bool))
    assert not none.numpy().any() and not block(arrays.vectors(1, 3, 4), none).numpy().any()
    with pytest.raises(OptionError, match="`prototypes`"):
        HistoryPrototypes(0)
