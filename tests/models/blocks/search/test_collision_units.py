"""SDIM's two units, the search by collisions and the sum of what collides."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.attention import DINAttention
from merlin_sim.models.blocks.checks import OptionError
from merlin_sim.models.blocks.search.attention_units import CollisionAttentionUnit
from merlin_sim.models.blocks.search.search_units import CollisionSearchUnit


def test_contract_of_the_search(contract_step, arrays):
    contract_step(lambda: CollisionSearchUnit(3, 2), arrays.target_and_history)


@pytest.mark.parametrize("stage_one", [False, True])
def test_contract_of_the_attention(contract_step, arrays, stage_one):
    def inputs(batch):
        target, history = arrays.target_and_history(batch)
        search = CollisionSearchUnit(3, 2)
        search.build(tf.TensorShape([None, 3, 4]))
        search.set_weights([np.random.default_rng(1).normal(size=(4, 6))])
        return target, history, search(target, history), stage_one

    contract_step(lambda: CollisionAttentionUnit(counts=stage_one), inputs)


def test_it_is_the_mean_over_the_hashes_of_the_sum_of_what_has_the_candidates_code(arrays):
    target, history = arrays.target_and_history(5)
    hashes, bits = 3, 2
    search = CollisionSearchUnit(hashes, bits)
    found = search(target, history)
    attended = CollisionAttentionUnit(counts=True)(target, history, found).attended.numpy()
    projection = search.projection.projection.numpy().reshape(4, hashes, bits)
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
    assert found.strength.numpy().max() > 0
    np.testing.assert_array_equal(found.selected, found.strength > 0)


def test_padding_and_what_comes_later_never_collide(arrays):
    target, history = arrays.target_and_history(5)
    found = CollisionSearchUnit(8, 1)(target, history)
    assert not found.strength.numpy()[~history.mask.numpy()].any()


def test_stage_one_attends_to_the_whole_long_history(arrays):
    target, history = arrays.target_and_history(5)
    found = CollisionSearchUnit(3, 2)(target, history)
    interest = CollisionAttentionUnit()(target, history, found, stage_one=True)
    whole = DINAttention()(target.vector, history.vectors, history.mask)
    np.testing.assert_allclose(interest.searched, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("option", "value"), [("hashes", 0), ("bits_per_hash", 25)])
def test_sizes_are_checked(option, value):
    with pytest.raises(OptionError, match=f"`{option}`"):
        CollisionSearchUnit(**{option: value})
