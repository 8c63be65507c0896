from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.row_parts import in_parts


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
