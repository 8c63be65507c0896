from __future__ import annotations

import numpy as np
import tensorflow as tf

from merlin_sim.models.blocks.hard_search_unit import HardSearchUnit


def test_contract(contract_step, arrays):
    contract_step(
        lambda: HardSearchUnit(top_k=2),
        lambda batch: (
            arrays.vectors(batch, 4),
            arrays.vectors(batch, 6, 4),
            arrays.mask(batch, 6),
            arrays.ids(2, batch),
            arrays.ids(2, batch, 6),
        ),
    )


def test_the_newest_of_the_targets_category_are_kept():
    categories = tf.constant([[3, 3, 1, 3, 2, 3], [0, 0, 1, 2, 2, 1], [0, 0, 0, 0, 0, 0]])
    mask = categories > 0
    target = tf.constant([3, 4, 0])  # 4 is nowhere; 0 pads and must not match padding
    found = HardSearchUnit(2)(tf.ones([3, 1]), tf.ones([3, 6, 1]), mask, target, categories)
    expected = [[False, False, False, True, False, True], [False] * 6, [False] * 6]
    np.testing.assert_array_equal(found.selected, expected)
