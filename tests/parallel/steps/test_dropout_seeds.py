"""The masks of dropout: a function of seed, step, rank and layer that no interpreter changes."""

from __future__ import annotations

import pytest
import tensorflow as tf

from merlin_sim.parallel.steps.dropout_seeds import DropoutSeeds


class TwoDropouts(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.second = (tf.keras.layers.Dropout(0.5) for _ in range(2))

    def call(self, values, training=True):
        return [layer(values, training=training) for layer in (self.first, self.second)]


def masks(seed, step, rank):
    DropoutSeeds.prepare()
    model = TwoDropouts()
    numbers = [tf.constant(number, tf.int64) for number in (seed, step)]
    tf.function(DropoutSeeds([model], rank).start_step, autograph=False)(*numbers)
    return [tuple((mask.numpy() > 0).tolist()) for mask in model(tf.ones([64]))]


@pytest.mark.slow
def test_masks_depend_on_seed_step_rank_and_layer_alone(monkeypatch):
    first, second = masks(1, 2, 3)
    others = [masks(*numbers)[0] for numbers in ((2, 2, 3), (1, 3, 3), (1, 2, 4), (2, 1, 3))]
    assert len({first, second, *others}) == 6
    # Python's versions hash a tuple of numbers in ways of their own.
    monkeypatch.setattr("builtins.hash", lambda value: 7)
    assert masks(1, 2, 3) == [first, second]
