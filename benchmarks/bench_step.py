"""Samples per second of a SIM training step and of its forward pass.

Batch 4096, embedding_dim 16, history 90 + 10, float32; beside a plain Keras SIM, and beside
Keras ``fit`` under Merlin's Model, which is what the loop of this package was chosen against.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from merlin_sim.scripts.quiet import silence_third_party_noise

silence_third_party_noise()

import tensorflow as tf  # noqa: E402
from plain_sim import PlainSIM, plain_step  # noqa: E402
from sim_rows import write_dataset  # noqa: E402
from timing import in_turn, show  # noqa: E402

from merlin_sim.models import build_model  # noqa: E402
from merlin_sim.training.distributed import Ranks  # noqa: E402
from merlin_sim.training.evaluation import Predictor  # noqa: E402
from merlin_sim.training.feed import open_feed  # noqa: E402
from merlin_sim.training.loss_scale import LossScale  # noqa: E402
from merlin_sim.training.optimizers import make_optimizer  # noqa: E402
from merlin_sim.training.train_step import TrainStep  # noqa: E402

ROUNDS = 7


def trainer(dataset, optimizer):
    """Build a model and its compiled step."""
    model = build_model("sim", dataset.schema)
    optimizer = make_optimizer(optimizer, model.trainable_variables, 0.01)
    return model, TrainStep(model, optimizer, LossScale(False), Ranks())


def measure(dataset, batch_size: int, steps: int) -> None:
    """Time every alternative over the same few batches."""
    columns = dataset.schema.column_names
    feed = open_feed(dataset, "train", columns, batch_size, Ranks(), shuffle=True, seed=1)
    batches = [batch for batch, _ in zip(feed, range(4), strict=False)]
    feed.stop()
    model, adam = trainer(dataset, "adam")
    _, lazy = trainer(dataset, "lazy_adam")
    fitted = build_model("sim", dataset.schema)
    fitted.compile(tf.keras.optimizers.legacy.Adam(0.01), metrics=[])
    plain = PlainSIM()
    plain_train = plain_step(plain)
    plain_forward = tf.function(plain, reduce_retracing=True)
    predict = Predictor(model)

    def every(work):
        def run() -> int:
            for index in range(steps):
                work(*batches[index % len(batches)])
            return steps * batch_size

        return run

    endless = tf.data.Dataset.from_generator(
        lambda: (batches[i % len(batches)] for i in range(steps)),
        output_signature=tf.nest.map_structure(
            lambda t: tf.TensorSpec([None, *t.shape[1:]], t.dtype), batches[0]
        ),
    )

    def fit() -> int:
        fitted.fit(endless, verbose=0)
        return steps * batch_size

    training = {
        "step, adam": every(lambda x, y: adam(x, y, 1.0).losses.numpy()),
        "step, lazy_adam": every(lambda x, y: lazy(x, y, 1.0).losses.numpy()),
        "Merlin's Model.fit, adam": fit,
        "plain Keras step, adam": every(lambda x, y: plain_train(x, y).numpy()),
    }
    forward = {
        "forward": every(lambda x, y: predict(x).numpy()),
        "plain Keras forward": every(lambda x, y: plain_forward(x).numpy()),
    }
    for title, work, baseline in (
        (f"training step, batch {batch_size}", training, "plain Keras step, adam"),
        (f"inference, batch {batch_size}", forward, "plain Keras forward"),
    ):
        in_turn(work, 2)
        show(title, in_turn(work, ROUNDS), baseline)


def main() -> None:
    """Measure the published setting, and a small batch, where the loop's own cost shows."""
    with tempfile.TemporaryDirectory() as directory:
        dataset = write_dataset(Path(directory), 5 * 4096)
        measure(dataset, 4096, steps=1)
        measure(dataset, 64, steps=10)


if __name__ == "__main__":
    main()
