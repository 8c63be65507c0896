"""How fast the models are by themselves: training step and forward pass, no feed.

    python benchmarks/bench_models.py [--model sim] [--batch 4096] [--steps 10]

Prints the median and best wall time and the best processor time of a step. On a machine that
others use, the processor time divided by the number of cores is what to compare.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema, Tags

from merlin_sim.models import MODELS, build_model

HISTORY_LENGTH = 100
USERS, ITEMS, CATEGORIES = 100_000, 350_000, 1_600


def column(name, domain, highest, tags, *, is_list=False):
    """Return a categorical column's schema."""
    properties = {"domain": {"min": 0, "max": highest, "name": domain}}
    lists = {"dims": (None, (HISTORY_LENGTH, HISTORY_LENGTH))} if is_list else {}
    return ColumnSchema(name, dtype="int64", tags=tags, properties=properties, **lists)


def make_schema():
    """Return the Amazon Books columns, with tables of moderate size."""
    label = ColumnSchema("label", dtype="int64", tags=["label", Tags.TARGET])
    columns = [label, column("user", "user", USERS, ["user_features", Tags.USER])]
    for channel, suffix, is_list in (
        ("target_item_features", "", False),
        ("positive_history", "_pos", True),
        ("negative_history", "_neg", True),
    ):
        for feature, highest in (("item", ITEMS), ("cat", CATEGORIES)):
            columns.append(column(feature + suffix, feature, highest, [channel], is_list=is_list))
    return Schema(columns)


def make_batch(schema, batch):
    """Return a batch of full histories, uniform over the ids."""
    rng = np.random.default_rng(0)
    columns = {}
    for each in schema:
        shape = (batch, HISTORY_LENGTH) if each.is_list else (batch,)
        highest = each.int_domain.max if each.int_domain else 1
        columns[each.name] = tf.constant(rng.integers(1, highest + 1, shape))
    return columns, tf.constant(rng.integers(0, 2, batch))


def measure(name, function, batch, steps):
    """Print how long ``function`` takes."""
    function()
    function()
    walls, processor = [], []
    for _ in range(steps):
        wall, cpu = time.perf_counter(), time.process_time()
        tf.nest.map_structure(lambda tensor: tensor.numpy(), function())
        walls.append(time.perf_counter() - wall)
        processor.append(time.process_time() - cpu)
    median, best = np.median(walls), min(walls)
    print(
        f"{name:9}  median {1e3 * median:6.0f} ms ({batch / median:8,.0f} samples/s)  "
        f"best {1e3 * best:6.0f} ms ({batch / best:8,.0f} samples/s)  "
        f"processor {1e3 * min(processor):6.0f} ms",
        flush=True,
    )


def main():
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=sorted(MODELS), default="sim")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    schema = make_schema()
    columns, label = make_batch(schema, arguments.batch)
    model = build_model(arguments.model, schema)
    optimizer = tf.keras.optimizers.legacy.Adam(0.01)

    @tf.function
    def forward():
        return model.forward(columns).logits

    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            losses, _ = model.compute_step(columns, label)
        found = tape.gradient(losses.total_loss, model.trainable_variables)
        return tf.add_n([tf.reduce_sum(getattr(each, "values", each)) for each in found])

    @tf.function
    def step():
        optimizer.minimize(
            lambda: model.compute_step(columns, label)[0].total_loss, model.trainable_variables
        )
        return tf.constant(0)

    for name, function in (("forward", forward), ("gradients", gradients), ("step", step)):
        measure(name, function, arguments.batch, arguments.steps)


if __name__ == "__main__":
    main()
