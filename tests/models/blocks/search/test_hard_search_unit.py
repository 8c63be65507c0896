from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.checks import OptionError
from merlin_sim.models.blocks.search.search_and_attention import LongHistory, Target
from merlin_sim.models.blocks.search.search_units import HardSearchUnit


def test_contract(contract_step, arrays):
    contract_step(lambda: HardSearchUnit("category", top_k=2), arrays.target_and_history)


def test_the_newest_of_the_targets_category_are_kept():
    categories = tf.constant([[3, 3, 1, 3, 2, 3], [0, 0, 1, 2, 2, 1], [0, 0, 0, 0, 0, 0]])
    # 4 is nowhere; 0 pads and must not match padding
    target = Target(tf.ones([3, 1, 1]), {"category": tf.constant([[3], [4], [0]])})
    mask = (categories > 0)[:, tf.newaxis]
    history = LongHistory(tf.ones([3, 6, 1]), mask, {"category": categories})
    found = HardSearchUnit("category", 2)(target, history)
    expected = [[False, False, False, True, False, True], [False] * 6, [False] * 6]
    np.testing.assert_array_equal(found.selected[:, 0], expected)
    assert found.weights is None, "it scored nothing"


def test_the_newest_are_those_that_the_candidate_sees():
    categories = tf.constant([[3, 3, 1, 3, 2, 3]])
    ends = tf.constant([[[6], [5], [3]]])
    target = Target(tf.ones([1, 3, 1]), {"category": tf.constant([[3, 3, 1]])})
    history = LongHistory(tf.ones([1, 6, 1]), tf.range(6) < ends, {"category": categories})
    found = HardSearchUnit("category", 2)(target, history).selected.numpy()
    assert [np.flatnonzero(kept).tolist() for kept in found[0]] == [[3, 5], [1, 3], [2]]


def test_the_category_is_a_name():
    with pytest.raises(OptionError, match="`category_feature` should name a column"):
        HardSearchUnit(5)
