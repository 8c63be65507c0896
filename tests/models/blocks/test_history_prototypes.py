from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from merlin_sim.models.blocks.checks import OptionError
from merlin_sim.models.blocks.history_prototypes import HistoryPrototypes


def test_contract(contract_step, arrays):
    def inputs(batch):
        summary = arrays.vectors(batch, 3, 2, 5)
        return arrays.vectors(batch, 6, 4), tf.concat([summary[..., :4], summary[..., 4:] ** 2], -1)

    contract_step(lambda: HistoryPrototypes(2, heads=2, head_dim=3), inputs)


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

    def summarize(places):
        of_places = tf.constant(vectors[:, places])
        return block.summarize(of_places, tf.ones([1, 1, len(places)], tf.bool)).numpy()

    whole = summarize(list(range(len(parts))))
    grown = np.zeros_like(whole)
    for part in chance.sample(range(4), 4):
        grown += summarize([place for place, of in enumerate(parts) if of == part])
    np.testing.assert_allclose(grown, whole, rtol=1e-5, atol=1e-5)
    assert abs(whole[..., -1].sum() - len(parts)) < 1e-4


def test_an_empty_history_gives_zeros(block, arrays):
    none = block.summarize(arrays.vectors(1, 6, 4), tf.zeros([1, 1, 6], tf.bool))
    assert not none.numpy().any() and not block(arrays.vectors(1, 3, 4), none).numpy().any()


def test_there_is_a_prototype_at_least():
    with pytest.raises(OptionError, match="`prototypes`"):
        HistoryPrototypes(0)
