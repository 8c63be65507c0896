"""Models by name, their weights by name, and rows in parts."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.models import OptionError, build_model, options_type
from merlin_sim.models.row_parts import in_parts
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


def test_names_depend_on_neither_models_made_before_nor_precision():
    class Hidden(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self._inner = tf.keras.layers.Dense(2)
            self._inner.build([None, 1])
            self._count = tf.Variable(0, trainable=False)

    policy = tf.keras.mixed_precision.global_policy()
    for kind in ("float32", "float32", "mixed_float16"):
        tf.keras.mixed_precision.set_global_policy(kind)
        try:
            names = list(named_variables(TwoLayers()))
        finally:
            tf.keras.mixed_precision.set_global_policy(policy)
        assert names == [
            f"{layer}/{weight}" for layer in ("first", "second") for weight in ("kernel", "bias")
        ]
    assert set(named_variables(Hidden())) == {"_inner/kernel", "_inner/bias"}  # what is trained


@pytest.mark.parametrize("function", [build_model, options_type])
def test_an_unknown_model_is_named_with_those_there_are(function, make_schema):
    with pytest.raises(OptionError, match="'din' or .* or 'sim'. Received: .*'mind'"):
        function(*(["mind", make_schema()] if function is build_model else ["mind"]))
    assert issubclass(OptionError, MerlinSimError)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("count", [0, 1, 4, 5, 9, 23])
def test_every_row_has_its_result_in_its_place(graph, count):
    sizes = []

    def function(rows):
        tf.debugging.assert_less_equal(tf.shape(rows["x"])[0], 4)
        sizes.append(rows["x"].shape[0])
        return rows["x"][:, tf.newaxis] * 2.0 + rows["y"]

    def run(x, y):
        return in_parts(function, {"x": x, "y": y}, rows_per_part=4)

    x, y = tf.range(count, dtype=tf.float32), tf.reshape(tf.range(count, dtype=tf.float32), [-1, 1])
    result = (tf.function(run, autograph=False) if graph else run)(x, y)
    np.testing.assert_array_equal(result, 3.0 * np.arange(count)[:, np.newaxis])
    if not graph:
        assert len(sizes) == max(1, -(-count // 4)) and max(sizes) - min(sizes) <= 1
