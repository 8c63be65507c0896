from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.checks import OptionError
from merlin_sim.models.blocks.search.history_split import HistorySplit


@pytest.mark.parametrize(("long_length", "has_ends"), [(0, True), (4, False), (6, True)])
def test_contract(contract_step, arrays, long_length, has_ends):
    ends = tf.constant([[6, 5], [4, 6], [0, 1], [6, 6], [2, 3]])
    contract_step(
        lambda: HistorySplit(long_length, 6 - long_length),
        lambda batch: (arrays.vectors(batch, 6), *([ends[:batch]] if has_ends else [])),
    )


def test_the_last_positions_are_the_short_history():
    parts = HistorySplit(2, 1)(tf.constant([[1, 2, 3]]))
    assert (parts.long.numpy().tolist(), parts.short.numpy().tolist()) == ([[1, 2]], [[[3]]])


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


def test_ends_at_the_end_of_all_places_are_no_ends(arrays):
    split, real = HistorySplit(4, 2), arrays.mask(5, 6)
    with_ends = split.masks(real, tf.fill([5, 3], 6))
    without = split.masks(real)
    for ours, theirs in zip(with_ends, without, strict=True):
        np.testing.assert_array_equal(ours, tf.repeat(theirs, 3, axis=1))


@pytest.mark.parametrize(("long", "short", "named"), [(-1, 1, "long_length"), (1, -1, "short")])
def test_a_negative_length_is_an_error(long, short, named):
    with pytest.raises(OptionError, match=f"`{named}.* = -1"):
        HistorySplit(long, short)
