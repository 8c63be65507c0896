from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.recurrence import AuxiliaryNetwork


def make_inputs(arrays, batch, length):
    states = [arrays.vectors(batch, 5) for _ in range(length)]
    history, negative = arrays.vectors(batch, length, 3), arrays.vectors(batch, length, 3)
    return states, history, negative, arrays.mask(batch, length)


def test_contract(contract_step, arrays):
    contract_step(lambda: AuxiliaryNetwork(3, (8, 4)), lambda batch: make_inputs(arrays, batch, 4))


@pytest.mark.parametrize("length", [2, 5])
def test_it_is_the_network_on_state_and_next_item_concatenated(arrays, length):
    states, history, negative, mask = make_inputs(arrays, 5, length)
    network = AuxiliaryNetwork(3, (8, 4))
    logits = network(states, history, negative, mask)
    for ours, items in ((logits.click, history), (logits.noclick, negative)):
        hidden = tf.concat([tf.stack(states[:-1], axis=1), items[:, 1:]], axis=-1)
        for dense in network.dense:
            hidden = dense(hidden)
        np.testing.assert_allclose(ours, hidden[:, :, 0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(logits.mask, mask[:, 1:])


def test_dropout_only_in_training_and_for_each_history_by_itself(arrays):
    states, history, _, mask = make_inputs(arrays, 5, 4)
    network = AuxiliaryNetwork(3, (8, 64), dropout_rate=0.5)
    calm = network(states, history, history, mask)
    np.testing.assert_array_equal(calm.click, calm.noclick)
    dropped = network(states, history, history, mask, training=True)
    assert np.abs(dropped.click - dropped.noclick).min() > 0
    assert np.abs(dropped.click - calm.click).min() > 0
    again = AuxiliaryNetwork.from_config(network.get_config())
    assert again.dropout_rate == 0.5 and AuxiliaryNetwork(3).dropout is None


def test_a_history_of_one_position_has_no_next_one(arrays):
    logits = AuxiliaryNetwork(3)(*make_inputs(arrays, 5, 1))
    assert [part.shape.as_list() for part in logits] == [[5, 0]] * 3
