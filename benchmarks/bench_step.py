"""Samples per second of a SIM training step and of its forward pass.

Batch 4096, embedding_dim 16, history 90 + 10, float32; beside a plain Keras SIM, and beside
Keras's ``fit`` of the same step. Ours with the threads that ``merlin-sim train`` and ``inference``
choose, and with TensorFlow's choice, which all others have.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from merlin_sim.foundation.process_wide import silence_third_party_noise

silence_third_party_noise()

import tensorflow as tf  # noqa: E402
from baselines.plain_sim import PlainSIM, plain_step  # noqa: E402
from measuring.own_process import OwnProcess, Works  # noqa: E402
from measuring.timing import in_turn, show  # noqa: E402
from rows.sim_rows import write_dataset  # noqa: E402

from merlin_sim.dataloader.open_loader import open_loader  # noqa: E402
from merlin_sim.foundation.ranks import Ranks  # noqa: E402
from merlin_sim.models import build_model  # noqa: E402
from merlin_sim.schemas.dataset import DatasetDirectory  # noqa: E402
from merlin_sim.steps.loss_scale import LossScale  # noqa: E402
from merlin_sim.steps.optimizers import Adam, make_optimizer  # noqa: E402
from merlin_sim.steps.train_step import TrainStep  # noqa: E402
from merlin_sim.training.evaluation.prediction import Predictor  # noqa: E402
from merlin_sim.training.runs.affinity import shares_operations  # noqa: E402

ROUNDS = 7


def trainer(dataset, optimizer):
    """Build a model and its compiled step."""
    model = build_model("sim", dataset.schema)
    optimizer = make_optimizer(optimizer, model.trainable_variables, 0.01)
    return model, TrainStep(model, optimizer, LossScale(False), Ranks())


def every(work, batches, steps: int, batch_size: int):
    """Make a work of ``steps`` calls."""

    def run() -> int:
        for index in range(steps):
            work(*batches[index % len(batches)])
        return steps * batch_size

    return run


def read_batches(dataset, batch_size: int):
    """Read the same few batches in every process."""
    columns = dataset.schema.column_names
    feed = open_loader(dataset, "train", columns, batch_size, Ranks(), shuffle=True, seed=1)
    batches = [batch for batch, _ in zip(feed, range(4), strict=False)]
    feed.stop()
    return batches


def our_steps(directory: Path, batch_size: int, steps: int) -> Works:
    """Make the steps of this package's loop, and its forward pass."""
    dataset = DatasetDirectory.open(directory)
    batches = read_batches(dataset, batch_size)
    model, adam = trainer(dataset, "adam")
    _, lazy = trainer(dataset, "lazy_adam")
    predict = Predictor(model, parts=not shares_operations())
    works = {
        "step, adam": lambda x, y: adam(x, y, 1.0).losses.numpy(),
        "step, lazy_adam": lambda x, y: lazy(x, y, 1.0).losses.numpy(),
        "forward": lambda x, y: predict(x).numpy(),
    }
    return {name: every(work, batches, steps, batch_size) for name, work in works.items()}


def plain_steps(directory: Path, batch_size: int, steps: int) -> Works:
    """Make the plain model's steps."""
    batches = read_batches(DatasetDirectory.open(directory), batch_size)
    model = PlainSIM()
    train, forward = plain_step(model), tf.function(model, reduce_retracing=True)
    works = {
        "plain Keras step, adam": lambda x, y: train(x, y).numpy(),
        "plain Keras forward": lambda x, y: forward(x).numpy(),
    }
    return {name: every(work, batches, steps, batch_size) for name, work in works.items()}


def keras_fit(directory: Path, batch_size: int, steps: int) -> Works:
    """Make Keras's ``fit`` of the same step, over the same batches."""
    dataset = DatasetDirectory.open(directory)
    batches = read_batches(dataset, batch_size)
    fitted = build_model("sim", dataset.schema)
    fitted.compile(Adam(0.01), metrics=[])
    endless = tf.data.Dataset.from_generator(
        lambda: (batches[i % len(batches)] for i in range(steps)),
        output_signature=tf.nest.map_structure(
            lambda t: tf.TensorSpec([None, *t.shape[1:]], t.dtype), batches[0]
        ),
    )

    def fit() -> int:
        fitted.fit(endless, verbose=0)
        return steps * batch_size

    return {"step within Keras's fit, adam, TensorFlow's threads": fit}


def measure(directory: Path, batch_size: int, steps: int) -> None:
    """Time every alternative over the same few batches."""
    arguments = directory, batch_size, steps
    ours = OwnProcess(our_steps, *arguments, as_command=True).works
    default = OwnProcess(our_steps, *arguments).works
    plain = OwnProcess(plain_steps, *arguments).works
    training = {
        "step, adam": ours["step, adam"],
        "step, lazy_adam": ours["step, lazy_adam"],
        "step, adam, TensorFlow's threads": default["step, adam"],
        **OwnProcess(keras_fit, *arguments).works,
        "plain Keras step, adam": plain["plain Keras step, adam"],
    }
    forward = {
        "forward": ours["forward"],
        "forward, TensorFlow's threads": default["forward"],
        "plain Keras forward": plain["plain Keras forward"],
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
        write_dataset(Path(directory), 5 * 4096)
        measure(Path(directory), 4096, steps=1)
        measure(Path(directory), 64, steps=10)


if __name__ == "__main__":
    main()
