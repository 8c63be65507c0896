from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.checks import OptionError
from merlin_sim.models.blocks.mlp import ClassifierMLP


@pytest.mark.slow
@pytest.mark.parametrize("hidden_dims", [(), (8, 4)])
def test_contract(contract_step, arrays, hidden_dims):
    contract_step(lambda: ClassifierMLP(hidden_dims), lambda batch: (arrays.vectors(batch, 4),))


def test_slopes_start_at_a_tenth():
    mlp = ClassifierMLP((1,))
    mlp.build(tf.TensorShape([None, 1]))
    mlp.dense[0].set_weights([np.ones([1, 1]), np.zeros(1)])
    mlp.logit.set_weights([np.ones([1, 1]), np.zeros(1)])
    logits = mlp(tf.constant([[2.0], [-2.0]]))
    np.testing.assert_allclose(logits, [[2.0], [-0.2]], rtol=1e-6)


def test_the_logit_is_float32_in_mixed_precision():
    mlp = ClassifierMLP((4,), dtype="mixed_float16")
    assert mlp(tf.ones([2, 3])).dtype == tf.float32


def test_dropout_only_in_training():
    mlp = ClassifierMLP((64,), dropout_rate=0.5)
    inputs = tf.ones([4, 8])
    np.testing.assert_array_equal(mlp(inputs), mlp(inputs, training=False))
    assert not np.allclose(mlp(inputs), mlp(inputs, training=True))


@pytest.mark.parametrize("options", [{"hidden_dims": (4, 0)}, {"dropout_rate": 1.0}])
def test_impossible_options_are_errors(options):
    with pytest.raises(OptionError, match=f"`{next(iter(options))}` should be"):
        ClassifierMLP(**options)
