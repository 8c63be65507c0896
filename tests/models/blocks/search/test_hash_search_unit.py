from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.checks import OptionError
from merlin_sim.models.blocks.search.search_and_attention import LongHistory, Target
from merlin_sim.models.blocks.search.search_units import HashSearchUnit


def test_contract(contract_step, arrays):
    contract_step(lambda: HashSearchUnit(bits=6, top_k=2), arrays.target_and_history)


@pytest.mark.parametrize("top_k", [1, 3, 6, 50])
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


def test_of_equal_codes_the_newest_are_kept_however_many_bits_and_positions(arrays):
    """Bits x positions is beyond the whole numbers that float32 can tell apart."""
    bits, places = 4096, 5000
    vectors = tf.ones([1, places, 4])
    mask = tf.constant([[[True] * (places - 1) + [False]]])
    found = HashSearchUnit(bits, 3)(Target(tf.ones([1, 1, 4]), {}), LongHistory(vectors, mask, {}))
    assert np.flatnonzero(found.selected).tolist() == [places - 4, places - 3, places - 2]


def test_neither_padding_nor_what_comes_later_is_kept_however_near(arrays):
    masks = arrays.masks(5, 3, 6)
    seen_by_all = tf.reduce_all(masks, axis=1)[:, :, tf.newaxis]
    vectors = tf.where(seen_by_all, -tf.ones([5, 6, 4]), tf.ones([5, 6, 4]))
    history = LongHistory(vectors, masks, {})
    for top_k in (1, 4, 6, 50):
        found = HashSearchUnit(16, top_k)(Target(tf.ones([5, 3, 4]), {}), history)
        assert not (found.selected & ~masks).numpy().any()
        kept = np.sum(found.selected.numpy(), axis=-1)
        np.testing.assert_array_equal(kept, np.minimum(top_k, np.sum(masks.numpy(), axis=-1)))


def test_no_bit_is_an_error():
    with pytest.raises(OptionError, match="`bits` should be a positive integer"):
        HashSearchUnit(bits=0)
