from __future__ import annotations

import horovod.tensorflow.keras as hvd
import pytest
import tensorflow as tf

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.steps.compiled_optimizer import find_optimizer
from merlin_sim.steps.optimizers import SGD, Adam, LazyAdam


@pytest.fixture
def weight():
    return tf.Variable([1.0], name="weight")


@pytest.mark.parametrize(
    ("name", "expected"), [("adam", Adam), ("Adam", Adam), ("lazy_adam", LazyAdam), ("sgd", SGD)]
)
def test_the_published_names_give_ours(name, expected, weight):
    optimizer = find_optimizer(name, [weight])
    assert type(optimizer) is expected
    assert float(optimizer.learning_rate) == pytest.approx(0.01 if name == "sgd" else 0.001)


@pytest.mark.parametrize(
    "given", [tf.keras.optimizers.Adagrad, tf.keras.optimizers.legacy.Adam, Adam]
)
def test_an_optimizer_stays_the_one_given_and_has_its_moments(given, weight):
    optimizer = given()
    assert find_optimizer(optimizer, [weight]) is optimizer
    made = len(optimizer.variables())
    optimizer.apply_gradients([(tf.constant([1.0]), weight)])
    assert made > 1 and len(optimizer.variables()) == made


def test_other_names_are_those_of_keras(weight):
    assert isinstance(find_optimizer("rmsprop", [weight]), tf.keras.optimizers.legacy.RMSprop)
    with pytest.raises(ValueError, match="nonsense"):
        find_optimizer("nonsense", [weight])


def test_what_averages_or_scales_by_itself_is_refused(weight):
    scaling = tf.keras.mixed_precision.LossScaleOptimizer
    legacy = tf.keras.optimizers.legacy.SGD()
    for optimizer in (scaling(SGD()), scaling(legacy), hvd.DistributedOptimizer(legacy)):
        with pytest.raises(MerlinSimError, match="should be a plain Keras optimizer"):
            find_optimizer(optimizer, [weight])
