from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.steps.optimizers import make_optimizer
from merlin_sim.steps.schedule import WarmUpAndDecay

PUBLISHED = WarmUpAndDecay(24.0, 8000, 48_000, 24_000, 2.0)


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (0, 0.0),
        (4000, 12.0),
        (8000, 24.0),
        (48_000, 24.0),
        (60_000, 6.0),
        (72_000, 0.0),
        (90_000, 0.0),
    ],
)
def test_the_published_schedule(step, rate):
    assert float(PUBLISHED(step)) == pytest.approx(rate, abs=1e-5)


def test_without_anything_the_rate_is_constant():
    assert {float(WarmUpAndDecay(0.5)(step)) for step in (0, 10, 10**6)} == {0.5}


def test_every_optimizer_follows_it_within_a_graph():
    for name in ("adam", "lazy_adam", "sgd", "adagrad"):
        weight = tf.Variable([1.0])
        optimizer = make_optimizer(name, [weight], WarmUpAndDecay(0.1, 2, 3, 1))
        step = tf.function(lambda o=optimizer, w=weight: o.apply_gradients([(tf.ones([1]), w)]))
        found = []
        for _ in range(5):
            step()
            found.append(float(weight[0]))
        steps = -np.diff([1.0, *found])
        assert steps[0] == 0 and steps[4] == 0 and (steps[1:4] > 0).all(), name
        copy = type(optimizer).from_config(optimizer.get_config())
        assert float(copy._learning_rate(1)) == pytest.approx(0.05)
