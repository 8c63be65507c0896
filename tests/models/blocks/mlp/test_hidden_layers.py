from __future__ import annotations

import pytest
import tensorflow as tf

from merlin_sim.models.blocks.mlp import HiddenLayers


@pytest.mark.parametrize("hidden_dims", [(), (8, 4)])
def test_contract(contract_step, arrays, hidden_dims):
    contract_step(lambda: HiddenLayers(hidden_dims), lambda batch: (arrays.vectors(batch, 4),))


@pytest.mark.parametrize(("hidden_dims", "width"), [((), 3), ((8, 5), 5)])
def test_the_width_of_what_comes_out_is_known(hidden_dims, width):
    layers = HiddenLayers(hidden_dims)
    assert layers.output_dim(3) == layers(tf.ones([2, 3])).shape[1] == width
    assert layers.compute_output_shape([None, 3]).as_list() == [None, width]
