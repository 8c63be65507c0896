"""The contract that every block keeps.

A test that asks for ``contract_step`` runs once for each step; it calls the step with a function
that makes the block and one that makes its inputs for a batch size.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.search.search_and_attention import LongHistory, Target

RELATIVE = 1e-5
HALF_TOLERANCE = 2e-2
BATCH = 5


def flat(outputs):
    return [tf.convert_to_tensor(part) for part in tf.nest.flatten(outputs) if part is not None]


def run(layer, inputs):
    return [part.numpy() for part in flat(layer(*inputs))]


def assert_same(ours, theirs, tolerance=RELATIVE):
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        if one.dtype == bool or np.issubdtype(one.dtype, np.integer):
            np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_allclose(
                one.astype(np.float32), other.astype(np.float32), rtol=tolerance, atol=tolerance
            )


def copy_of(layer, inputs):
    config = json.loads(json.dumps(layer.get_config()))
    assert tf.keras.utils.get_registered_name(type(layer)).startswith("merlin_sim>")
    serialized = {"class_name": f"merlin_sim>{type(layer).__name__}", "config": config}
    copy = tf.keras.layers.deserialize(serialized)
    assert type(copy) is type(layer)
    assert copy.get_config() == layer.get_config()
    copy(*inputs)
    return copy


def eager_equals_graph(make, make_inputs, tmp_path):
    layer, inputs = make(), make_inputs(BATCH)
    eager = run(layer, inputs)
    graph = tf.function(lambda: flat(layer(*inputs)))()  # with autograph, as a user may have it
    assert_same([part.numpy() for part in graph], eager)


def xla_equals_eager(make, make_inputs, tmp_path):
    layer, inputs = make(), make_inputs(BATCH)
    eager = run(layer, inputs)
    compute = tf.function(lambda *given: flat(layer(*given)), jit_compile=True, autograph=False)
    compiled = compute(*inputs)
    assert_same([part.numpy() for part in compiled], eager)


def config_and_weights_make_a_copy(make, make_inputs, tmp_path):
    layer, inputs = make(), make_inputs(BATCH)
    outputs = run(layer, inputs)
    copy = copy_of(layer, inputs)
    copy.set_weights(layer.get_weights())
    assert_same(run(copy, inputs), outputs)


def checkpoint_restores_a_copy(make, make_inputs, tmp_path):
    layer, inputs = make(), make_inputs(BATCH)
    outputs = run(layer, inputs)
    path = tf.train.Checkpoint(layer=layer).write(str(tmp_path / "layer"))
    copy = copy_of(layer, inputs)
    tf.train.Checkpoint(layer=copy).read(path).assert_existing_objects_matched()
    assert_same(run(copy, inputs), outputs)


def saved_model_serves_the_same(make, make_inputs, tmp_path):
    layer, inputs = make(), make_inputs(BATCH)
    outputs = run(layer, inputs)
    module = tf.Module()
    module.layer = layer
    module.serve = tf.function(lambda *given: flat(layer(*given)), autograph=False)
    module.serve(*inputs)
    tf.saved_model.save(module, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    assert_same([part.numpy() for part in loaded.serve(*inputs)], outputs)


def batch_of_one_is_a_row(make, make_inputs, tmp_path):
    layer, inputs = make(), make_inputs(BATCH)
    rows = run(layer, inputs)
    for place in range(BATCH):
        row = slice(place, place + 1)
        one = tf.nest.map_structure(
            lambda part, row=row: part[row] if tf.is_tensor(part) else part, inputs
        )
        assert_same(run(layer, one), [part[row] for part in rows])


def gradients_are_finite(make, make_inputs, tmp_path):
    layer, inputs = make(), make_inputs(BATCH)
    layer(*inputs)
    with tf.GradientTape() as tape:
        parts = [tf.cast(p, tf.float32) for p in flat(layer(*inputs)) if p.dtype.is_floating]
        loss = tf.add_n([tf.reduce_sum(part**2) for part in parts] or [tf.constant(0.0)])
    # One position has no recurrence, so its kernels no gradient: zeros.
    zero = tf.UnconnectedGradients.ZERO
    gradients = tape.gradient(loss, layer.trainable_variables, unconnected_gradients=zero)
    largest = [np.abs(tf.convert_to_tensor(gradient).numpy()).max() for gradient in gradients]
    assert not gradients or max(largest) > 0
    for variable, gradient in zip(layer.trainable_variables, gradients, strict=True):
        assert np.isfinite(tf.convert_to_tensor(gradient).numpy()).all(), variable.name


def float16_is_close_to_float32(make, make_inputs, tmp_path):
    layer, inputs = make(), make_inputs(BATCH)
    outputs = run(layer, inputs)
    policy = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        half = make()
        half(*inputs)
        half.set_weights(layer.get_weights())
        ours = run(half, inputs)
    finally:
        tf.keras.mixed_precision.set_global_policy(policy)
    assert all(variable.dtype == tf.float32 for variable in half.trainable_variables)
    assert all(np.isfinite(part).all() for part in ours)
    assert_same(ours, outputs, HALF_TOLERANCE)


STEPS = [
    eager_equals_graph,
    xla_equals_eager,
    config_and_weights_make_a_copy,
    checkpoint_restores_a_copy,
    saved_model_serves_the_same,
    batch_of_one_is_a_row,
    gradients_are_finite,
    float16_is_close_to_float32,
]


def pytest_generate_tests(metafunc):
    if "contract_step" in metafunc.fixturenames:
        slow = (xla_equals_eager, saved_model_serves_the_same)
        marks = [[pytest.mark.slow] if step in slow else [] for step in STEPS]
        params = [
            pytest.param(s, id=s.__name__, marks=m) for s, m in zip(STEPS, marks, strict=True)
        ]
        metafunc.parametrize("contract_step", params, indirect=True)


@pytest.fixture
def contract_step(request, tmp_path):
    return lambda make, make_inputs: request.param(make, make_inputs, tmp_path)


@pytest.fixture
def arrays():
    """Vectors, and masks whose first row is all padding and whose second has one position."""

    class Arrays:
        def __init__(self):
            self.rng = np.random.default_rng(7)

        def vectors(self, *shape):
            return tf.constant(self.rng.normal(size=shape).astype(np.float32))

        def mask(self, batch, length):
            real = np.array([0, 1, length, length // 2, length - 1] * batch)[:batch]
            return tf.constant(np.arange(length) >= length - real[:, None])

        def masks(self, batch, candidates, length):
            """For each candidate one place less of what is real."""
            places = np.arange(length) < length - np.arange(candidates)[:, None]
            return self.mask(batch, length)[:, tf.newaxis] & tf.constant(places)

        def ids(self, highest, *shape):
            return tf.constant(self.rng.integers(1, highest + 1, size=shape))

        def target_and_history(self, batch, time_dim=0, candidates=3):
            """Candidates of [batch, 3, 4] and a history of [batch, 6, 4], of two categories."""
            vectors, history = self.vectors(batch, candidates, 4), self.vectors(batch, 6, 4)
            times = self.vectors(batch, 6, time_dim) if time_dim else None
            ids = {"category": self.ids(2, batch, 6)}
            target = Target(vectors, {"category": self.ids(2, batch, candidates)})
            return target, LongHistory(history, self.masks(batch, candidates, 6), ids, times)

    return Arrays()
