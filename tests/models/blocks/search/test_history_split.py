from __future__ import annotations

import pytest
import tensorflow as tf

from merlin_sim.models.blocks.checks import OptionError
from merlin_sim.models.blocks.search.history_split import HistorySplit


@pytest.mark.parametrize("long_length", [0, 4, 6])
def test_contract(contract_step, arrays, long_length):
    contract_step(lambda: HistorySplit(long_length), lambda batch: (arrays.vectors(batch, 6, 2),))


def test_the_last_positions_are_the_short_history():
    parts = HistorySplit(2)(tf.constant([[1, 2, 3]]))
    assert (parts.long.numpy().tolist(), parts.short.numpy().tolist()) == ([[1, 2]], [[3]])


def test_shapes_are_told():
    parts = HistorySplit(2).compute_output_shape([None, 5, 3])
    assert (parts.long.as_list(), parts.short.as_list()) == ([None, 2, 3], [None, 3, 3])


def test_a_negative_length_is_an_error():
    with pytest.raises(OptionError, match="`long_length` = -1"):
        HistorySplit(-1)
