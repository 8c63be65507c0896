"""What XLA would do one id after the other on a GPU is left to what comes after it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models.blocks.embeddings.table_lookup import table_lookup
from merlin_sim.parallel.steps import OPTIMIZERS, train_step
from merlin_sim.parallel.steps.loss_scale import LossScale
from merlin_sim.parallel.steps.optimizers import make_optimizer
from merlin_sim.parallel.steps.train_step import TrainStep

IDS = tf.constant([[1, 2, 1], [4, 1, 2]], tf.int64)


class OneTable:
    """Scores rows of ids by the sum of their vectors."""

    def __init__(self):
        start = np.random.default_rng(0).normal(size=[6, 3]).astype(np.float32)
        with tf.name_scope("table"):
            self.table = tf.Variable(start, name="embeddings")
        self.trainable_variables = [self.table]

    def compute_step(self, columns, labels, sample_weight, training):
        (vectors,) = table_lookup(self.table, [columns["ids"]])
        logits = tf.reduce_sum(vectors, axis=[1, 2])
        return [tf.reduce_mean((logits - labels) ** 2)], logits


def trained(optimizer, xla):
    model = OneTable()
    made = make_optimizer(optimizer, model.trainable_variables, 0.05, 0.01)
    step = TrainStep(model, made, LossScale(False), Ranks(), xla)
    given = {"ids": IDS}, tf.constant([1.0, 0.0]), tf.constant(False), tf.constant(1.0)
    train = tf.function(step.run, autograph=False)
    losses = [train(*given).losses.numpy() for _ in range(4)]
    return step, np.concatenate(losses), model.table.numpy()


def program_of(step):
    given = ({"ids": IDS}, tf.constant([1.0, 0.0]), tf.constant(1.0), None)
    return step.gradients.experimental_get_compiler_ir(*given)(stage="hlo")


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_compiled_for_a_gpu_trains_the_same(optimizer, monkeypatch):
    _, losses, table = trained(optimizer, xla=False)
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: ["a GPU"])
    step, other_losses, other_table = trained(optimizer, xla=True)
    np.testing.assert_allclose(other_losses, losses, rtol=1e-5)
    np.testing.assert_allclose(other_table, table, rtol=1e-5, atol=1e-7)
    assert "while(" not in program_of(step)


@pytest.mark.parametrize(("ranks", "rows"), [(Ranks(), 6), (Ranks(0, 2), 3)])
def test_only_between_ranks_are_rows_added_up_after_it(monkeypatch, ranks, rows):
    sent = []

    def average(gradients, reported, *_):
        sent.extend(gradients)
        return gradients, reported

    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: ["a GPU"])
    monkeypatch.setattr(train_step, "average_gradients", average)
    model = OneTable()
    made = make_optimizer("sgd", model.trainable_variables, 0.05)
    step = TrainStep(model, made, LossScale(False), ranks, xla=True)
    step.run({"ids": IDS}, tf.constant([1.0, 0.0]), tf.constant(False), tf.constant(1.0))
    assert len(sent[0].indices) == rows


def test_on_a_processor_each_row_is_named_once_in_a_compiled_step():
    model = OneTable()
    made = make_optimizer("adam", model.trainable_variables, 0.05)
    assert "while(" in program_of(TrainStep(model, made, LossScale(False), Ranks(), xla=True))
