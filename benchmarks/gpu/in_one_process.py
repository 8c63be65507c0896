"""Measures without the command line: the feed alone, and batches that are in GPU memory beforehand.

    PYTHONPATH=benchmarks .venv/bin/python benchmarks/gpu/in_one_process.py TASK DATASET BATCH

Prints samples a second, of a second time through.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from merlin_sim.foundation.process_wide import silence_third_party_noise

silence_third_party_noise()

import tensorflow as tf  # noqa: E402

from merlin_sim.dataloader.open_loader import open_loader  # noqa: E402
from merlin_sim.foundation.ranks import Ranks  # noqa: E402
from merlin_sim.models import build_model  # noqa: E402
from merlin_sim.parallel.steps.loss_scale import LossScale  # noqa: E402
from merlin_sim.parallel.steps.optimizers import make_optimizer  # noqa: E402
from merlin_sim.parallel.steps.train_step import TrainStep  # noqa: E402
from merlin_sim.schemas.dataset import DatasetDirectory  # noqa: E402
from merlin_sim.training.evaluation.prediction import Predictor  # noqa: E402


def twice(once: Callable[[], int]) -> float:
    """Do something that goes through samples once to be warm, and again to be measured."""
    once()
    begin = time.perf_counter()
    rows = once()
    return rows / (time.perf_counter() - begin)


def feed_alone(dataset: DatasetDirectory, batch: int) -> float:
    """Batches of all columns, shuffled."""
    feed = open_loader(dataset, "train", dataset.schema.column_names, batch, Ranks(), shuffle=True)
    return twice(lambda: sum(len(labels) for _, labels in feed))


def predict_beforehand(dataset: DatasetDirectory, batch: int) -> float:
    """SIM's inference, AMP + XLA, of whole batches."""
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    model = build_model("sim", dataset.schema)
    feed = open_loader(dataset, "test", dataset.schema.column_names, batch, Ranks())
    batches = [columns for columns, labels in feed if len(labels) == batch]
    predict = Predictor(model, xla=True)

    def once() -> int:
        for _ in range(50):
            for columns in batches:
                scores = predict(columns)
        scores.numpy()  # waits for the device
        return 50 * len(batches) * batch

    return twice(once)


def train_beforehand(dataset: DatasetDirectory, batch: int) -> float:
    """SIM's training, AMP + XLA."""
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    model = build_model("sim", dataset.schema)
    optimizer = make_optimizer("adam", model.trainable_variables, 0.01)
    step = TrainStep(model, optimizer, LossScale(True), Ranks(), xla=True)
    feed = open_loader(dataset, "train", dataset.schema.column_names, batch, Ranks())
    batches = list(feed.inputs())

    @tf.function(autograph=False)
    def train(given: Any) -> Any:
        return step.run_made(step.made(given, feed.make), tf.constant(False)).losses

    def once() -> int:
        for _ in range(20):
            for given in batches:
                losses = train(given)
        losses.numpy()
        return 20 * feed.samples

    return twice(once)


TASKS = {"feed": feed_alone, "predict": predict_beforehand, "train": train_beforehand}

if __name__ == "__main__":
    task, directory, batch = sys.argv[1:]
    print(TASKS[task](DatasetDirectory.open(Path(directory)), int(batch)))
