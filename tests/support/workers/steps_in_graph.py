"""A training step in a graph of its own, without ``fit``."""

from __future__ import annotations

import tensorflow as tf

from merlin_sim.parallel.steps.train_step import batch_spec


def on_batches(step, make=tuple):
    """Return what trains on one batch after the other, with any number of rows.

    Args:
        step: A TrainStep.
        make: Makes a batch of what each call is given, in TensorFlow ops.
    """
    graphs = []

    def train(given):
        if not graphs:
            graphs.append(
                tf.function(
                    lambda given: step.run_made(step.made(given, make), tf.constant(False)),
                    input_signature=[batch_spec(given)],
                    autograph=False,
                )
            )
        return graphs[0](given)

    return train
