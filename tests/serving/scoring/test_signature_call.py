"""A server calls a signature millions of times."""

from __future__ import annotations

import gc
import sys

import numpy as np
import tensorflow as tf

from merlin_sim.serving.scoring.signature_call import call_signature


def test_calls_leave_nothing_in_memory():
    """TensorFlow on Python 3.11 leaves a block of memory of every tensor that Python has seen."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def doubled(x):
        return {"y": 2 * x, "also": x + 1}

    signature = doubled.get_concrete_function()
    given = {"x": np.arange(3, dtype=np.float32)}

    def blocks_after(calls):
        for _ in range(calls):
            np.testing.assert_array_equal(call_signature(signature, given, "y"), 2 * given["x"])
        gc.collect()
        return sys.getallocatedblocks()

    before = blocks_after(50)
    assert blocks_after(500) - before < 100  # 1,500 where it was not let go
