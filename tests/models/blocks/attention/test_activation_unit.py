from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.attention.activation_unit import ActivationUnit
from merlin_sim.models.blocks.checks import OptionError


def test_contract(contract_step, arrays):
    contract_step(
        lambda: ActivationUnit((8, 4)),
        lambda batch: (arrays.vectors(batch, 4), arrays.vectors(batch, 6, 4)),
    )


def test_it_is_the_network_on_the_four_inputs_concatenated(arrays):
    target, history = arrays.vectors(5, 4), arrays.vectors(5, 6, 4)
    unit = ActivationUnit((8, 4))
    scores = unit(target, history)
    item = tf.repeat(target[:, tf.newaxis], 6, axis=1)
    hidden = tf.concat([item, history, item - history, item * history], axis=-1)
    for dense in unit.dense:
        hidden = dense(hidden)
    np.testing.assert_allclose(scores, hidden[:, :, 0], rtol=1e-5, atol=1e-6)
    one_by_one = unit.score_each(target, tf.unstack(history, axis=1))
    np.testing.assert_allclose(one_by_one, hidden[:, :, 0], rtol=1e-5, atol=1e-6)


def test_no_hidden_layer_is_an_error():
    with pytest.raises(OptionError, match=r"`hidden_dims` .*\(1 or more\)"):
        ActivationUnit(())
