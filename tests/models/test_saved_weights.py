from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.saving import MODEL_VARIABLES, named_variables, restore_weights
from merlin_sim.parallel.checkpoints.array_files import whole
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointError, CheckpointStore


class TwoLayers(tf.keras.Model):
    """Two layers of one shape, made in the order of ``names``."""

    def __init__(self, names=("first", "second")):
        super().__init__()
        for name in names:
            setattr(self, name, tf.keras.layers.Dense(3))
            getattr(self, name).build([None, 3])
        self.built = True


def save(model, path):
    variables = named_variables(model)
    arrays = {name: variable.numpy() for name, variable in variables.items()}
    CheckpointStore(path).save(1, {MODEL_VARIABLES: list(variables)}, whole(arrays))
    return CheckpointStore(path).load()


def test_layers_that_change_places_keep_their_own_weights(tmp_path):
    model, other = TwoLayers(), TwoLayers(("second", "first"))
    checkpoint = save(model, tmp_path)
    restore_weights(other, checkpoint)
    np.testing.assert_array_equal(other.first.kernel, model.first.kernel)
    np.testing.assert_array_equal(other.second.kernel, model.second.kernel)
    assert not np.array_equal(other.second.kernel, model.first.kernel)


def test_a_layer_of_another_name_is_refused_with_both_names(tmp_path):
    checkpoint = save(TwoLayers(), tmp_path)
    renamed = TwoLayers(("first", "last"))
    before = renamed.get_weights()
    with pytest.raises(CheckpointError) as raised:
        restore_weights(renamed, checkpoint)
    said = str(raised.value)
    assert "step-0000000001 is of another model" in said
    assert "last/kernel [3, 3] is not in it" in said
    assert "second/kernel [3, 3] is in it, and the model has no such variable" in said
    for weight, kept in zip(renamed.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, kept)  # not even the first layer was changed


def test_names_do_not_depend_on_models_made_before():
    assert list(named_variables(TwoLayers())) == list(named_variables(TwoLayers()))
    assert set(named_variables(TwoLayers())) == {
        f"{layer}/{weight}" for layer in ("first", "second") for weight in ("kernel", "bias")
    }


def test_a_trained_variable_behind_a_private_attribute_has_a_name():
    class Hidden(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self._inner = tf.keras.layers.Dense(2)
            self._inner.build([None, 1])
            self._count = tf.Variable(0, trainable=False)

    assert set(named_variables(Hidden())) == {"_inner/kernel", "_inner/bias"}


def test_mixed_precision_changes_no_name():
    plain = list(named_variables(TwoLayers()))
    policy = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        assert list(named_variables(TwoLayers())) == plain
    finally:
        tf.keras.mixed_precision.set_global_policy(policy)
