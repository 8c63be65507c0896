from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.embeddings.table_lookup import table_lookup

IDS = [[1, 2], [[1, 3], [3, 3]], [0]]


def gradient_of(lookup, table):
    with tf.GradientTape() as tape:
        first, second, third = lookup(table, [tf.constant(part) for part in IDS])
        loss = tf.reduce_sum(first**2) + tf.reduce_sum(second**3) + tf.reduce_sum(third)
    return tape.gradient(loss, table)


@pytest.mark.parametrize("compiled", [None, False, True])
def test_the_gradient_is_that_of_plain_gathers(compiled):
    table = tf.Variable(np.random.default_rng(0).normal(size=[6, 3]).astype(np.float32))
    step = (
        gradient_of
        if compiled is None
        else tf.function(gradient_of, jit_compile=compiled, autograph=False)
    )
    ours = step(table_lookup, table)
    theirs = gradient_of(lambda table, ids: [tf.gather(table, part) for part in ids], table)
    assert isinstance(ours, tf.IndexedSlices)
    np.testing.assert_allclose(tf.convert_to_tensor(ours), tf.convert_to_tensor(theirs), rtol=1e-6)
    rows = ours.indices.numpy()
    assert len(rows) == len(set(rows.tolist()))


@pytest.mark.parametrize("with_gradient", [True, False])
def test_the_table_is_never_read_whole(with_gradient):
    lookup = functools.partial(table_lookup, with_gradient=with_gradient)
    table = tf.Variable(np.ones([6, 3], np.float32))
    step = tf.function(gradient_of, autograph=False).get_concrete_function(lookup, table)
    assert "ReadVariableOp" not in {operation.type for operation in step.graph.get_operations()}
    np.testing.assert_array_equal(lookup(table, [tf.constant([[1, 2]])])[0], np.ones([1, 2, 3]))
