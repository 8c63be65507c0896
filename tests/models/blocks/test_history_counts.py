from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.checks import OptionError
from merlin_sim.models.blocks.history_counts import HistoryCounts, HistorySimilarity


@pytest.mark.parametrize("has_ends", [False, True])
def test_contract(contract_step, arrays, has_ends):
    ends = tf.constant([[6, 5, 4], [6, 6, 1], [0, 1, 6], [6, 6, 6], [2, 3, 3]])

    def inputs(batch):
        target = {"item": arrays.ids(3, batch, 3), "category": arrays.ids(2, batch, 3)}
        history = {"item": arrays.ids(3, batch, 6), "category": arrays.ids(2, batch, 6)}
        return target, history, arrays.mask(batch, 6), ends[:batch] if has_ends else None

    contract_step(lambda: HistoryCounts(length=5, windows=(2, 3)), inputs)


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
    for user, place in np.ndindex(2, 4):
        end = 9 if ends is None else ends[user][place]
        visible = [int(i) for i in history[user, max(end - length, 0) : end] if i]
        expected = count_slowly(int(target[user, place]), visible, length, windows)
        positions = np.log1p(len(visible)) / np.log1p(length)
        np.testing.assert_allclose(ours[user, place], [*expected, positions], atol=1e-6)


def test_windows_as_long_as_the_history_are_left_out():
    assert HistoryCounts(length=30).counts_dim(2) == 2 * (2 * 2 + 1) + 1
    with pytest.raises(OptionError, match="`windows`"):
        HistoryCounts(length=30, windows=(0,))


def test_similarity_keeps_the_contract(contract_step, arrays):
    def inputs(batch):
        vectors = arrays.vectors(batch, 3, 4), arrays.vectors(batch, 6, 4)
        return (*vectors, arrays.masks(batch, 3, 6))

    contract_step(HistorySimilarity, inputs)


def test_similarity_counts_cosines_in_21_bins(arrays):
    similarity = HistorySimilarity()
    similarity.build(None)
    weights = np.linspace(0.5, 2.0, 21).astype(np.float32)
    similarity.set_weights([weights])
    target, history = arrays.vectors(5, 3, 4).numpy(), arrays.vectors(5, 6, 4).numpy()
    history[:, 2] = 3 * target[:, 0]  # the same direction
    history[:, 3] = -target[:, 1]
    mask = arrays.masks(5, 3, 6).numpy()
    ours = similarity(*map(tf.constant, (target, history, mask))).numpy()
    for user, place in np.ndindex(5, 3):
        one = target[user, place].astype(np.float64)
        counts = np.zeros(21)
        for position in history[user][mask[user, place]]:
            cosine = one @ position / np.linalg.norm(one) / np.linalg.norm(position)
            counts[20 if cosine > 0.998 else max(0, int(np.floor((cosine + 1) * 10)))] += 1
        np.testing.assert_allclose(ours[user, place], weights * np.log1p(counts), rtol=1e-6)
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
