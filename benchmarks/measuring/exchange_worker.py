"""One rank of bench_exchange: times the exchange and update of one table's gradient."""

from __future__ import annotations

import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from merlin_sim.ranks import collectives
from merlin_sim.steps.optimizers import make_optimizer

ROWS, DIM, NAMED, ROUNDS = 1_200_000, 16, 60_000, 7


def main() -> None:
    """Time both ways in turn; rank 0 prints."""
    ranks = collectives.start()
    random = np.random.default_rng(ranks.rank)
    table = tf.Variable(tf.zeros([ROWS, DIM]))
    indices = tf.constant(np.sort(random.choice(ROWS, NAMED, replace=False)).astype(np.int32))
    values = tf.constant(random.normal(size=(NAMED, DIM)).astype(np.float32))
    shape = tf.constant([ROWS, DIM])

    def exchange(dense, optimizer):
        @tf.function(autograph=False)
        def step():
            slices = tf.IndexedSlices(values, indices, shape)
            gradients, _ = collectives.average_gradients(
                [slices, tf.zeros([8])], tf.zeros([1]), ranks, dense_tables=dense
            )
            if optimizer is not None:
                optimizer.apply_gradients([(gradients[0], table)])
            gradient = gradients[0]
            return gradient.values[0, 0] if hasattr(gradient, "indices") else gradient[0, 0]

        return step

    ways = {}
    for name, dense in (("sparse", False), ("dense", True)):
        ways[f"{name}, exchange only"] = exchange(dense, None)
        for optimizer in ("adam", "lazy_adam"):
            made = make_optimizer(optimizer, [table], 0.01)
            ways[f"{name}, {optimizer}"] = exchange(dense, made)
    seconds = {name: [] for name in ways}
    for turn in range(ROUNDS + 1):
        for name, step in ways.items():
            begin = time.perf_counter()
            step().numpy()
            if turn:
                seconds[name].append(time.perf_counter() - begin)
    if ranks.is_first:
        print(f"gradient of {NAMED:,} of {ROWS:,} rows x {DIM} on {ranks.size} ranks")
        for name, found in seconds.items():
            print(f"  {name:28} {1000 * statistics.median(found):9.1f} ms")


if __name__ == "__main__":
    main()
